#!/bin/bash
# Changes for the shop, about 20 transactions a second, until it is stopped; the customers that it adds are deleted again, 10,000 later.
set -eu
while sleep 0.05; do
  cat <<'SQL'
BEGIN;
INSERT INTO customers (email, credit) VALUES (CONCAT('load', UUID_SHORT(), '@example.org'), ROUND(RAND() * 1000, 2));
SET @id = CAST(LAST_INSERT_ID() AS SIGNED);
INSERT INTO orders VALUES (UUID_SHORT(), @id, 'new', NOW(3));
UPDATE customers SET credit = credit + 1 WHERE id = @id - FLOOR(RAND() * 100) AND email LIKE 'load%';
DELETE FROM orders WHERE customer_id = @id - 10000 AND id > 1000000;
DELETE FROM customers WHERE id = @id - 10000 AND email LIKE 'load%';
COMMIT;
SQL
done | mysql --host=mysql --user=tidemark --password=tidemark shop
