package master

import (
	"strings"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// noteUnread warns once of each daemon whose format this program does not read: daemons that
// read it recover its jobs.
func (j *recoverer) noteUnread(all []store.Unread) {
	for _, u := range all {
		master := u.ID
		if id, err := proc.ParseIdentity(u.ID); err == nil {
			master = id.String()
		}
		// One line for a master and its processes, but one for each expired process.
		key, what := master, "another daemon of this fleet writes in a format that this version does not read; what it leaves is left to daemons that read it"
		if strings.HasPrefix(u.ID, master+":") {
			key, what = u.ID, "a worker process whose lease is past has written in a format that this version does not read; its jobs are left to daemons that read it"
		}
		if !j.first("format of " + key) {
			continue
		}
		j.log.Warn(what, zap.String("other", wire.Printable(u.ID, 200)), zap.String("other_host", wire.Printable(u.Host, 200)),
			zap.String("other_version", wire.Printable(u.Version, 100)), zap.String("other_format", wire.Printable(u.Format, 20)),
			zap.String("reads", store.FormatsRead()))
	}
}
