#!/bin/sh
# Generates the passwords and keys that docker-compose.yml requires, in the given file, unless they are set there or in
# the environment. Existing values are never changed; only the owner can read the file.
set -eu
umask 077
file=${1:?which file, such as .env}
[ -e "$file" ] || : >"$file"
chmod 600 "$file"
[ -z "$(tail -c 1 "$file")" ] || echo >>"$file"

random() { head -c 32 /dev/urandom | base64 | tr -d '\n'; }

add() {
    if eval "[ -n \"\${$1:-}\" ]" || grep -Eq "^(export )?$1=.+" "$file"; then return; fi
    printf '%s=%s\n' "$1" "$2" >>"$file"
    echo "made $1 in $file"
}

# Letters and digits only, so that no program needs quotes to read them.
for name in POSTGRES_PASSWORD TEMPORAL_DB_PASSWORD HOLDFAST_DB_PASSWORD; do
    add "$name" "$(random | tr -d '/+=')"
done
add HOLDFAST_FLEET_KEYS "k$(date -u +%Y%m%d):$(random)"
