package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/resqued/resqued/internal/testkit/pgtest"
)

// postgres is the server of a whole run, because starting one takes seconds.
type postgres struct {
	server *pgtest.Server
	pool   *pgxpool.Pool
}

func startPostgres(ctx context.Context) (*postgres, error) {
	server, err := pgtest.Launch(ctx, pgtest.Options{Durable: true, Settings: []string{"shared_buffers=256MB", "max_wal_size=4GB"}})
	if err != nil {
		return nil, err
	}
	p := &postgres{server: server}
	if p.pool, err = pgxpool.New(ctx, server.URL("")); err != nil {
		server.Stop()
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *postgres) stop() {
	p.pool.Close()
	p.server.Stop()
}

// reset empties the queues. Tuned sessions do not wait for the disk.
func (p *postgres) reset(ctx context.Context, tuned bool) error {
	commit := "on"
	if tuned {
		commit = "off"
	}
	for _, sql := range []string{
		"TRUNCATE river_job", "DELETE FROM river_queue", "DELETE FROM river_leader", "ALTER ROLE postgres SET synchronous_commit = " + commit, "CHECKPOINT",
	} {
		if _, err := p.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	p.pool.Reset()
	return nil
}

// analyze does what autovacuum would have done by the time so many jobs wait.
func (p *postgres) analyze(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, "VACUUM ANALYZE river_job")
	return err
}

func (p *postgres) snapshot(ctx context.Context) (counters, error) {
	c := counters{cpu: cpu(tree(p.server.PID()))}
	err := p.pool.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&c.commands)
	return c, err
}
