package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/locker"
)

const (
	maxDatabaseURL = 64 << 10
	// lockerConns are one for queries, one to renew while another attempt hangs, one spare.
	lockerConns    = 3
	connectTimeout = 10 * time.Second
)

// Exit codes of locker run besides the command's own, from sysexits.h.
const (
	exitStolen      = 70
	exitNotObtained = 75
)

type lockerFlags struct{ urlFile, table string }

func (a *cli) lockerCommand() *cobra.Command {
	f := &lockerFlags{}
	c := a.command(verb{
		use: "locker", kind: noRedis, short: "locks across servers, in PostgreSQL",
		long: `Locks across servers, in a PostgreSQL table shared with the Ruby gem locker:
run a command on one server at a time, list who holds what, release or remove
locks.

The database is $DATABASE_URL, database_url in the configuration, or the URL in
the file of --database-url-file. The command line never takes a password, since
every user could read it.`,
		example: "locker migrate\nlocker run feeds --blocking -- ./check-feeds\nlocker ls",
	}, a.lockerRunCommand(f), a.lockerGuardCommand(), a.lockerListCommand(f), a.lockerReleaseCommand(f), a.lockerPruneCommand(f), a.lockerMigrateCommand(f))
	c.PersistentFlags().StringVar(&f.urlFile, "database-url-file", "", "`file` with the URL of the database")
	c.PersistentFlags().StringVar(&f.table, "table", locker.DefaultTable, "table of the locks, also schema.table")
	return c
}

func (a *cli) withDatabase(c *cobra.Command, f *lockerFlags, do func(*pgxpool.Pool) error) error {
	url := ""
	if f.urlFile == "" {
		r, err := a.loadAs(c, config.Options{})
		if err != nil {
			return err
		}
		a.warnOf(r)
		url = r.DatabaseURL // of all stores
	} else {
		var err error
		if url, err = a.readDatabaseURL(f.urlFile); err != nil {
			return err
		}
	}
	if url == "" {
		return usage("Set DATABASE_URL, or pass --database-url-file.", "no PostgreSQL database is given")
	}
	return inDatabase(c.Context(), url, do)
}

func inDatabase(ctx context.Context, url string, do func(*pgxpool.Pool) error) error {
	pool, err := openDatabase(ctx, url)
	if err != nil {
		return err
	}
	defer postgres.ClosePool(pool)
	return lockerProblem(do(pool))
}

// openDatabase returns a pool; it connects at first use.
func openDatabase(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := postgres.ParseURL(url)
	if err != nil { // its text may repeat parts of the password
		return nil, usage("Write postgres://user@host:5432/database; percent-encode special characters.", "the URL of the database is not valid")
	}
	config.MaxConns = lockerConns
	// Each statement runs only a few times.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if params := config.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = "resqued locker"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return pool, lockerProblem(err)
}

// askTable returns an error if a database does not answer, or lacks the table of locks.
func askTable(ctx context.Context, url string) error {
	return inDatabase(ctx, url, func(pool *pgxpool.Pool) error {
		_, err := locker.ListLocked(ctx, pool, locker.DefaultTable, 1)
		return err
	})
}

func (out *output) readDatabaseURL(path string) (string, error) {
	f, err := config.Open(path)
	if err != nil {
		return "", usage("", "--database-url-file: %s", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDatabaseURL))
	if err != nil {
		return "", usage("", "--database-url-file: %s", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		out.warn("%s may be read by every user of this machine", path)
	}
	url := strings.TrimSpace(string(text))
	if url == "" || strings.ContainsAny(url, "\r\n") {
		return "", usage("", "--database-url-file: %s has to hold the URL of the database, and nothing else", path)
	}
	return url, nil
}

// lockerProblem adds the exit code and advice to a database error.
func lockerProblem(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem](err); ok {
		return err
	}
	if _, ok := errors.AsType[exitCode](err); ok {
		return err
	}
	// The error of a failed connection has a line for each address.
	p := &problem{exit: exitFailed, code: "failed", cause: err, lines: []string{oneLine(err)}}
	server, _ := errors.AsType[*pgconn.PgError](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case server != nil && slices.Contains([]string{missingTable, missingColumn, "42P10", "42883", "23502"}, server.Code):
		p.exit, p.code = exitUsage, "config" // the text says what to do
	case server != nil && server.Code == unknownParameter:
		p.exit, p.code, p.hint = exitUsage, "config", "DATABASE_URL passes this parameter to the server, which does not know it; remove it."
	case server != nil && (strings.HasPrefix(server.Code, "28") || server.Code == "3D000"):
		p.exit, p.code, p.hint = exitUsage, "config", "See what DATABASE_URL names."
	case connecting, network, errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF),
		server != nil && (strings.HasPrefix(server.Code, "57P") || strings.HasPrefix(server.Code, "08")):
		p.exit, p.code, p.hint = exitUnreachable, "unreachable", "Start PostgreSQL, or say where it is with DATABASE_URL."
	}
	return p
}

var holderText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^host:(\S+) pid:(\d+) guid:[0-9a-f]+( revoked)?$`) })

// holderName shortens a holder's identifier, the gem's or ours.
func holderName(id string) string {
	if m := holderText().FindStringSubmatch(id); m != nil {
		return m[1] + " pid " + m[2]
	}
	return wire.Printable(id, 200)
}
