#!/bin/sh
# The image of PostgreSQL runs this once, when the database is made: a role that may follow the log, and a database of its own.
set -eu
psql --username="${POSTGRES_USER:-postgres}" --set=ON_ERROR_STOP=1 --set=password="$DATABASE_PASSWORD" <<'SQL'
create role daybook login replication password :'password';
create database daybook owner daybook;
SQL
