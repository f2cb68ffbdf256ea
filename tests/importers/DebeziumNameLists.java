import io.debezium.config.Configuration;
import io.debezium.connector.mysql.MySqlConnectorConfig;
import io.debezium.relational.*;
import io.debezium.relational.mapping.*;
import java.io.*;
import java.nio.file.*;
import java.util.*;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;

/** Writes to a file what the filters and mappers of Debezium choose for connectors; see record_name_lists.py. */
public class DebeziumNameLists {
    public static void main(String[] a) throws Exception {
        ObjectMapper m = new ObjectMapper();
        JsonNode in = m.readTree(new File(a[0]));
        ArrayNode out = m.createArrayNode();
        for (JsonNode one : in) {
            ObjectNode r = m.createObjectNode();
            try {
                Map<String,String> props = new LinkedHashMap<>();
                one.get("properties").fields().forEachRemaining(e -> props.put(e.getKey(), e.getValue().asText()));
                props.put("topic.prefix", "p"); props.put("database.hostname","h"); props.put("database.user","u"); props.put("database.server.id","1");
                Configuration c = Configuration.from(props);
                MySqlConnectorConfig cc = new MySqlConnectorConfig(c);
                RelationalTableFilters f = cc.getTableFilters();
                ArrayNode t = m.createArrayNode(); ArrayNode cols = m.createArrayNode(); ObjectNode masks = m.createObjectNode(); ObjectNode keys = m.createObjectNode();
                ColumnMappers mappers = ColumnMappers.create(cc);
                for (JsonNode n : one.get("tables")) {
                    TableId id = new TableId(n.get(0).asText(), null, n.get(1).asText());
                    String name = n.get(0).asText() + "\u0000" + n.get(1).asText();
                    if (f.dataCollectionFilter().isIncluded(id)) t.add(n);
                    TableEditor te = Table.editor().tableId(id);
                    int pos = 1;
                    List<Column> cs = new ArrayList<>();
                    for (JsonNode col : one.get("columns")) {
                        cs.add(Column.editor().name(col.asText()).type("VARCHAR").jdbcType(java.sql.Types.VARCHAR).length(100).position(pos++).create());
                    }
                    te.addColumns(cs); te.setPrimaryKeyNames(one.get("columns").get(0).asText());
                    Table table = te.create();
                    for (Column col : cs) {
                        String full = id.toString() + "." + col.name();
                        if (cc.getColumnFilter().matches(id.catalog(), id.schema(), id.table(), col.name())) cols.add(full);
                        ColumnMapper cm = mappers.mapperFor(id, col);
                        if (cm != null) masks.put(full, cm.getClass().getSimpleName());
                    }
                    if (cc.getKeyMapper() != null) {
                        ArrayNode ks = m.createArrayNode();
                        for (Column k : cc.getKeyMapper().getKeyKolumns(table)) ks.add(k.name());
                        keys.set(id.toString(), ks);
                    }
                }
                // Debezium 3.6.1 matches masks with "null.<column>", too: ColumnMappers.mappedTableId has no identifier yet.
                ArrayNode nulls = m.createArrayNode();
                for (JsonNode col : one.get("columns")) {
                    Column c1 = Column.editor().name(col.asText()).type("VARCHAR").jdbcType(java.sql.Types.VARCHAR).length(100).position(1).create();
                    if (mappers.mapperFor(new TableId(null, null, "null"), c1) != null) nulls.add(col.asText());
                }
                r.set("nulls", nulls);
                r.set("tables", t); r.set("columns", cols); r.set("masks", masks); r.set("keys", keys);
            } catch (Throwable e) { r.put("error", e.toString()); }
            out.add(r);
        }
        m.writeValue(new File(a[1]), out);
    }
}
