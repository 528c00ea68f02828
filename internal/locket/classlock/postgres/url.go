package postgres

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ignored are URL parameters that only ActiveRecord or libpq know. All others are sent to the
// server, such as search_path.
var ignored = []string{
	"adapter", "advisory_locks", "allow_concurrency", "allow_retry", "checkout_timeout", "connection_retries", "database_tasks", "encoding",
	"idle_timeout", "insert_returning", "keepalive", "max_age", "max_connections", "max_queries", "migrations_paths", "min_connections",
	"min_messages", "pool", "pool_jitter", "prefer_local", "prepared_statements", "query_cache", "reaping_frequency", "replica", "retry_deadline",
	"schema_cache_path", "schema_dump", "schema_search_path", "seeds", "statement_limit", "strings", "timeout", "unicode", "use_metadata_table",
	"username", "verify_timeout",
	// libpq's
	"client_encoding", "fallback_application_name", "gssencmode", "gsslib", "gssdelegation", "hostaddr", "keepalives", "keepalives_count",
	"keepalives_idle", "keepalives_interval", "load_balance_hosts", "replication", "requirepeer", "requiressl", "sslcompression", "sslcrl",
	"sslcrldir", "ssl_max_protocol_version", "ssl_min_protocol_version", "tcp_user_timeout",
}

// ParseURL reads a database URL as ActiveRecord does: it accepts postgis:// and takes the user,
// the schemas and the use of prepared statements from the parameters. The error never repeats
// the URL.
func ParseURL(text string) (*pgxpool.Config, error) {
	bad := errors.New("the URL of the database is not valid; write postgres://user@host:5432/database, special characters percent-encoded")
	if rest, ok := strings.CutPrefix(text, "postgis://"); ok {
		text = "postgres://" + rest
	}
	unprepared := false
	if head, query, found := strings.Cut(text, "?"); found {
		params, err := url.ParseQuery(query)
		if err != nil {
			return nil, bad
		}
		unprepared = params.Get("prepared_statements") == "false"
		for from, to := range map[string]string{"schema_search_path": "search_path", "username": "user"} {
			if params.Has(from) && !params.Has(to) {
				params.Set(to, params.Get(from))
			}
		}
		for name := range params {
			if slices.Contains(ignored, name) || strings.HasPrefix(name, "variables[") {
				params.Del(name)
			}
		}
		text = head
		if len(params) > 0 {
			text += "?" + params.Encode()
		}
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil { // its text may contain parts of the password
		return nil, bad
	}
	if unprepared {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return config, nil
}
