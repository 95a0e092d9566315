# shellcheck shell=sh disable=SC2154
# Sourced by scripts/services.

postgres_port=$((20000 + clone % 5000))

# The highest version that is installed; its programs are not in PATH on Debian.
postgres_bin() {
	for bin in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) $(dirname "$(command -v pg_ctl || echo /)"); do
		if [ -x "$bin/pg_ctl" ] && [ -x "$bin/initdb" ]; then
			echo "$bin"
			return
		fi
	done
}

up_postgres() {
	bin=$(postgres_bin)
	if [ -z "$bin" ]; then
		root || { lacks Postgres; return 0; }
		install postgresql
		bin=$(postgres_bin)
	fi
	dir=$(folder postgres postgres)
	if [ ! -f "$dir/data/PG_VERSION" ]; then
		say "creating a Postgres cluster in $dir"
		rm -rf "$dir/data"
		as postgres "$bin/initdb" -D "$dir/data" -U onceward -A trust -E UTF8 --locale=C.UTF-8 >&2
	fi
	# No socket: its path would be too long if the folder lies deep.
	if ! as postgres "$bin/pg_ctl" -D "$dir/data" status >/dev/null 2>&1; then
		say "starting Postgres on port $postgres_port"
		as postgres "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w start -o \
			"-p $postgres_port -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200 -c fsync=on" >&2
	fi
	answers "$bin/pg_isready" -h 127.0.0.1 -p "$postgres_port"
	echo "export ONCEWARD_POSTGRES='postgres://onceward@127.0.0.1:$postgres_port/postgres?sslmode=disable'"
}

down_postgres() {
	bin=$(postgres_bin)
	[ -n "$bin" ] || return 0
	dir=$(folder postgres postgres)
	if [ -f "$dir/data/postmaster.pid" ]; then
		as postgres "$bin/pg_ctl" -D "$dir/data" -m fast stop >&2
	fi
}
