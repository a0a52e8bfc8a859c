-- The shop's own table. That of the guard is made by `delayq guard init`.
CREATE TABLE accounts (customer INTEGER PRIMARY KEY, cents BIGINT NOT NULL);
INSERT INTO accounts (customer, cents) VALUES (1, 0), (2, 0), (3, 0);
