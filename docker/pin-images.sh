#!/bin/sh
# Writes the digest of each image beside its tag in docker-compose.yml and Dockerfile: tags can move, digests cannot.
#   docker/pin-images.sh           queries the registry with `docker buildx`; run it after each change of a version
#   docker/pin-images.sh --check   lists the images without a digest; exit code 1 if there are any
set -eu
cd "$(dirname "$0")/.."
files="docker-compose.yml Dockerfile"

# Lists the images to pull: those of x-images, and the base image.
images() {
    sed -nE 's/^  [a-z-]+: &[a-z-]+-image ([^ ]+)$/\1/p' docker-compose.yml
    sed -nE 's/^ARG PYTHON_IMAGE=([^ ]+)$/\1/p' Dockerfile
}

if [ "${1:-}" = --check ]; then
    loose=$(images | grep -Ev '@sha256:[0-9a-f]{64}$' || true)
    [ -z "$loose" ] || { echo "$loose" | sed 's/$/ is not pinned: docker\/pin-images.sh/' >&2; exit 1; }
    exit 0
fi

for image in $(images); do
    tag=${image%@*}
    digest=$(docker buildx imagetools inspect "$tag" --format '{{.Manifest.Digest}}')
    case $digest in sha256:*) ;; *) echo "no digest of $tag: $digest" >&2; exit 1 ;; esac
    for file in $files; do
        sed "s|${image}\$|${tag}@${digest}|" "$file" >"$file.pinned" && cat "$file.pinned" >"$file" && rm "$file.pinned"
    done
    echo "$tag@$digest"
done
