# shellcheck shell=sh disable=SC2154
# Sourced by scripts/services.

mariadb_port=$((25000 + clone % 5000))

up_mariadb() {
	if ! command -v mariadbd >/dev/null; then
		root || { lacks MariaDB; return 0; }
		install mariadb-server
	fi
	dir=$(folder mariadb mysql)
	if [ ! -f "$dir/made" ]; then
		say "creating a MariaDB data directory in $dir"
		rm -rf "$dir/data"
		as mysql mariadb-install-db --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal \
			--skip-test-db >&2
		as mysql touch "$dir/made"
	fi
	if ! mariadb_admin ping >/dev/null 2>&1; then
		say "starting MariaDB on port $mariadb_port"
		rm -f "$dir/pid"
		# The defaults are what users of old servers have: ids must survive a collation that folds.
		(as mysql setsid mariadbd --no-defaults --datadir="$dir/data" --pid-file="$dir/pid" --log-error="$dir/log.err" \
			--bind-address=127.0.0.1 --port="$mariadb_port" --socket="$dir/s" --max-connections=300 \
			--character-set-server=utf8mb4 --collation-server=utf8mb4_general_ci) </dev/null >/dev/null 2>&1 &
	fi
	answers mariadb_admin ping
	echo "export ONCEWARD_MYSQL='root@tcp(127.0.0.1:$mariadb_port)/'"
}

mariadb_admin() {
	mariadb-admin --no-defaults -h 127.0.0.1 -P "$mariadb_port" -u root "$@"
}

down_mariadb() {
	if command -v mariadbd >/dev/null && [ -f "$(folder mariadb mysql)/pid" ]; then
		mariadb_admin shutdown >&2 || true
	fi
}
