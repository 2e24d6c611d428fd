#!/bin/sh
# Runs once, while the data volume is empty: creates one role with its databases for Temporal, and one for Holdfast, on
# one server. Neither role can read the other's data.
set -e

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set temporal_password="${TEMPORAL_DB_PASSWORD:?}" \
    --set holdfast_password="${HOLDFAST_DB_PASSWORD:?}" <<'SQL'
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE ROLE holdfast LOGIN PASSWORD :'holdfast_password';

CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
CREATE DATABASE holdfast OWNER holdfast;
REVOKE CONNECT ON DATABASE temporal, temporal_visibility, holdfast FROM PUBLIC;

\connect holdfast
-- Only the administrator may create this extension.
CREATE EXTENSION vector;
SQL
