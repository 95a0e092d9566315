package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

// Store is the database.
type Store struct {
	Kind StoreKind
	Text string // as configured, without password and options: for logs
	Path string // of the SQLite file

	// URL is where the server is, with the password: it must not be printed. The options of Onceward's
	// own are no longer in it.
	URL *url.URL

	TablePrefix        string // empty: the default
	AllowLossyCommits  bool
	TransactionPooling bool
}

// StoreKind says what kind of database a store is.
type StoreKind string

// The kinds of database, called as [sqlstore.Migrations] does.
const (
	SQLite   StoreKind = "sqlite"
	Postgres StoreKind = "postgres"
	MySQL    StoreKind = "mysql" // or MariaDB
)

// Dialect is how the store's SQL is read.
func (s Store) Dialect() sqltext.Dialect {
	switch s.Kind {
	case Postgres:
		return sqltext.Postgres
	case MySQL:
		return sqltext.MySQL
	case SQLite:
	}
	return sqltext.SQLite
}

func (c *Config) readStore(n *node) {
	c.at(n)
	s, ok := n.text()
	if !ok {
		return
	}
	kind, rest, named := strings.Cut(s, ":")
	switch kind {
	case "sqlite":
		c.readSQLite(n, s, rest)
	case "postgres", "postgresql":
		c.Store.Kind = Postgres
		c.readServer(n, s)
	case "mysql", "mariadb":
		c.Store.Kind = MySQL
		c.readServer(n, s)
	default:
		if !named && !strings.ContainsAny(s, "@/") {
			n.faultf("%q does not say what kind of store it is; did you mean sqlite:%s?", s, s)
			return
		}
		n.faultf("%s:… is no store; use sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE", kind)
	}
}

func (c *Config) readSQLite(n *node, s, path string) {
	if path == "" {
		n.faultf("the path of the database file is missing, as in sqlite:payments.db")
		return
	}
	if strings.ContainsAny(path, "?#") || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "//") {
		n.faultf("sqlite: takes the path of a file and nothing else")
		return
	}
	c.Store = Store{Kind: SQLite, Path: c.resolve(path), Text: s}
	c.checkDatabase(n)
}

// checkDatabase finds out early what would otherwise be a database error without a line.
func (c *Config) checkDatabase(n *node) {
	switch info, err := os.Stat(c.Store.Path); {
	case err == nil && info.IsDir():
		n.faultf("%s is a directory", c.Store.Path)
	case errors.Is(err, fs.ErrNotExist):
		if dir, err := os.Stat(filepath.Dir(c.Store.Path)); err != nil || !dir.IsDir() {
			n.faultf("%s: the directory does not exist", c.Store.Path)
		}
	case err != nil:
		n.faultf("%s: %s", c.Store.Path, plain(err))
	}
}

// readServer takes the URL of a server. A password with special characters can make a URL of another
// meaning, in which any part may be a part of the password: so faults name no part.
func (c *Config) readServer(n *node, s string) {
	u, err := url.Parse(s)
	encode := "in user and password write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for # and %25 for %"
	switch {
	case err != nil:
		n.faultf("not a URL; %s", encode)
		return
	case u.Opaque != "" || !strings.HasPrefix(s, u.Scheme+"://"):
		n.faultf("not a URL like %s://USER:PASSWORD@HOST:PORT/DATABASE", c.Store.Kind)
		return
	case u.Fragment != "" || strings.Contains(s, "#") || strings.ContainsAny(u.Path, "@:") || strings.Count(u.EscapedPath(), "/") > 1:
		n.faultf("not a URL like %s://USER:PASSWORD@HOST:PORT/DATABASE; %s", c.Store.Kind, encode)
		return
	}
	if port := u.Port(); port != "" {
		if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
			n.faultf("the port is not between 1 and 65535")
		}
	}
	if c.Store.Kind == MySQL && (u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.User.Username() == "") {
		n.faultf("user, host or database is missing, as in mysql://USER:PASSWORD@HOST:3306/DATABASE")
	}
	c.readOptions(n, u)
	c.Store.URL = u
	c.Store.Text = string(c.Store.Kind) + "://" + u.Host + u.EscapedPath()
	if name := u.User.Username(); name != "" {
		c.Store.Text = string(c.Store.Kind) + "://" + url.User(name).String() + "@" + u.Host + u.EscapedPath()
	}
}

// Options of the drivers that have a meaning here; the others would change how statements run.
var serverOptions = map[StoreKind][]string{
	Postgres: {
		"application_name", "channel_binding", "connect_timeout", "host", "options", "passfile", "port", "search_path",
		"service", "servicefile", "sslcert", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs",
	},
	MySQL: {"tls"},
}

var (
	optionName  = regexp.MustCompile(`^[a-z_]{1,40}$`)
	tablePrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}$`)
)

// readOptions takes Onceward's own options out of the URL.
func (c *Config) readOptions(n *node, u *url.URL) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		n.faultf("what follows the ? is not NAME=VALUE&NAME=VALUE")
		return
	}
	for name, values := range q {
		v := values[len(values)-1]
		switch name {
		case "table_prefix":
			if !tablePrefix.MatchString(v) {
				n.faultf("table_prefix must be lower-case letters, digits and _, at most 31, and not begin with a digit")
			}
			c.Store.TablePrefix = v
		case "allow_lossy_commits":
			c.Store.AllowLossyCommits = optionBool(n, name, v)
		case "transaction_pooling":
			c.Store.TransactionPooling = optionBool(n, name, v)
		default:
			c.checkOption(n, name)
			continue
		}
		q.Del(name)
	}
	u.RawQuery = q.Encode()
}

func optionBool(n *node, name, v string) bool {
	b, err := strconv.ParseBool(v)
	if err != nil {
		n.faultf("the option %s must be true or false", name)
	}
	return b
}

func (c *Config) checkOption(n *node, name string) {
	known := serverOptions[c.Store.Kind]
	if slices.Contains(known, name) {
		return
	}
	if !optionName.MatchString(name) {
		name = "after the ?" // it may be a part of a password
	}
	all := append([]string{"allow_lossy_commits", "table_prefix", "transaction_pooling"}, known...)
	n.faultf("unknown option %s; known here are %s", name, strings.Join(all, ", "))
}
