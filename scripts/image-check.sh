#!/usr/bin/env bash
# Builds the image of a fresh project as a reader of docs/deployment.md does, starts its processes as compose.yaml names them (command, user,
# read-only root, order) and asks them. Needs root, buildah and mmdebstrap: the base is Debian with the Node of this checkout, so that nothing
# but Debian and npm is asked for anything. `--built` takes dist/ as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PATH="$root/node_modules/.bin:$PATH"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d -p /var/tmp daybook-image-XXXXXX)
chmod 755 "$work"
# Of this run alone: other images and containers of the machine are none of its business.
driver=$(grep -qw overlay /proc/filesystems && echo overlay || echo vfs)
run=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver "$driver")
began=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - began)) "$*"; }

cleanup() {
  local status=$?
  "${run[@]}" umount --all >/dev/null 2>&1 || true
  "${run[@]}" rm --all >/dev/null 2>&1 || true
  [ $status = 0 ] || tail -n 40 "$work"/*.log 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# The base, kept between runs: it takes most of the time.
cache=${DAYBOOK_IMAGE_CACHE:-/var/cache/daybook}
base=$cache/$suite-$(dpkg --print-architecture).tar
if [ ! -e "$base" ]; then
  mkdir -p "$cache"
  if ! mmdebstrap --quiet --variant=minbase --include=ca-certificates,libstdc++6 "$suite" "$base.new"; then
    rm -f "$base.new"
    echo 'The image is not built: the packages of Debian for its base cannot be fetched'
    exit 0
  fi
  mv "$base.new" "$base"
fi
container=$("${run[@]}" from scratch)
"${run[@]}" add --quiet "$container" "$base" / >/dev/null
"${run[@]}" copy --quiet "$container" node_modules/node/bin/node /usr/local/bin/node >/dev/null
npm_home=$(dirname "$(dirname "$(realpath "$(command -v npm)")")")
"${run[@]}" copy --quiet "$container" "$npm_home" /usr/local/lib/node_modules/npm >/dev/null
"${run[@]}" run --isolation chroot "$container" -- ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
"${run[@]}" commit --quiet --rm "$container" localhost/node:24 >/dev/null
say "a base of Debian $suite with Node $(node --version)"

# A project, from the tarball alone.
[ "${1:-}" = --built ] || npm run --silent build
npm pack --silent --ignore-scripts --pack-destination "$work" >/dev/null
tarball=$(echo "$work"/daybook-*.tgz)
mkdir "$work/unpacked"
tar -xzf "$tarball" -C "$work/unpacked"
node "$work/unpacked/package/bin/daybook.js" init "$work/board" --from "$tarball" >/dev/null
(cd "$work/board" && npm install --silent --package-lock-only --prefer-offline --no-audit --no-fund)
say 'a project of the package'

# The build has the machine's registry, certificates and what npm has fetched already.
settings=()
for name in registry cafile cache; do
  value=$(npm config get $name 2>/dev/null)
  # Node is told of certificates by a variable, too.
  [ "$name" = cafile ] && [ "$value" = null ] && value=${NODE_EXTRA_CA_CERTS:-null}
  [ "$value" = null ] || settings+=("$name=$value")
done
printf '%s\n' "${settings[@]}" prefer-offline=true update-notifier=false >"$work/npmrc"
volumes=(--volume "$work/npmrc:/root/.npmrc:ro" --volume "$(npm config get cache 2>/dev/null):$(npm config get cache 2>/dev/null)")
[ -d /etc/ssl/certs ] && volumes+=(--volume /etc/ssl/certs:/etc/ssl/certs:ro --volume /usr/local/share/ca-certificates:/usr/local/share/ca-certificates:ro)
"${run[@]}" build --quiet --isolation chroot --network host --format docker --build-arg NODE_IMAGE=localhost/node:24 \
  "${volumes[@]}" --tag localhost/board "$work/board" >"$work/build.log" 2>&1
container=$("${run[@]}" from --pull-never localhost/board)
image=$("${run[@]}" mount "$container")
say "the image: $(du -sm "$image" | cut -f1) MB, $(du -sm "$image/app" | cut -f1) of them the application"

node scripts/image-smoke.ts "$work/board" "$image" 2>"$work/processes.log"
say 'it runs'
