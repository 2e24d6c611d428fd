#!/bin/sh
# Brings Temporal's two databases to the schema of this server version. A second run changes nothing.
# The connection comes from SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD.
set -eu
versions=/etc/temporal/schema/postgresql/v12

temporal-sql-tool --database temporal setup-schema --version 0.0
temporal-sql-tool --database temporal update-schema --schema-dir "$versions/temporal/versioned"

temporal-sql-tool --database temporal_visibility setup-schema --version 0.0
temporal-sql-tool --database temporal_visibility update-schema --schema-dir "$versions/visibility/versioned"
