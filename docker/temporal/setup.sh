#!/bin/sh
# Creates the namespace and registers the search attributes Holdfast writes. A second run changes nothing.
# The connection comes from TEMPORAL_ADDRESS; holdfast/core/temporal/search_attributes.py defines the attributes.
set -eu

# The port opens before the server can answer: retry until it does.
attempt=0
until temporal operator cluster health >/dev/null 2>&1; do
    attempt=$((attempt + 1))
    if [ "$attempt" -ge 60 ]; then
        echo "Temporal at $TEMPORAL_ADDRESS is not healthy" >&2
        exit 1
    fi
    sleep 2
done

if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$TEMPORAL_RETENTION"
fi

# A new namespace takes some seconds to reach all services.
register() {
    attempt=0
    until temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" "$@"; do
        attempt=$((attempt + 1))
        if [ "$attempt" -ge 30 ]; then
            echo "Cannot register in namespace $TEMPORAL_NAMESPACE: $*" >&2
            exit 1
        fi
        sleep 2
    done
}
register --name HoldfastAgent --type Keyword
register --name HoldfastStatus --type Keyword
register --name HoldfastPending --type Int
register --name HoldfastStep --type Int
register --name HoldfastWakeAt --type Datetime
register --name HoldfastWaitsFor --type KeywordList
register --name HoldfastRoot --type Keyword

echo "Namespace $TEMPORAL_NAMESPACE is ready"
