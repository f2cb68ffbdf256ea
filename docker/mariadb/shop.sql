-- What the README's grants are for a user of your own.
GRANT REPLICATION SLAVE, BINLOG MONITOR, TRIGGER ON *.* TO tidemark;
GRANT SELECT ON mysql.proc TO tidemark;

CREATE TABLE shop.tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048));
CREATE TABLE shop.customers (id INT AUTO_INCREMENT PRIMARY KEY, email VARCHAR(120) NOT NULL, credit DECIMAL(12,2) NOT NULL);
CREATE TABLE shop.orders (
  id BIGINT UNSIGNED PRIMARY KEY, customer_id INT NOT NULL, status ENUM('new','paid','shipped') NOT NULL, placed DATETIME(3) NOT NULL
);
INSERT INTO shop.customers VALUES (1, 'ada@example.org', 10.50), (2, 'grace@example.org', 0);
INSERT INTO shop.orders VALUES (1, 1, 'paid', '2026-01-02 03:04:05.678'), (18446744073709551615, 2, 'new', '2026-02-03 04:05:06.789');
