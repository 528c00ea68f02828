package master

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/wire"
)

// Shared are the settings that all daemons of a fleet must share.
type Shared struct {
	// Digest is a hash of Text, which others compare.
	Digest, Text string
	// Differs compares with the Text of another master.
	Differs func(text string) []Difference
}

// Difference is a setting that two daemons must share but do not.
type Difference struct {
	Setting, Here, There string
	// Breaks says what the difference breaks.
	Breaks string
}

// compare logs differences from other masters of the fleet in settings that they must share,
// once per configuration. Equal settings cost nothing.
func (j *recoverer) compare(ctx context.Context, own Shared, others map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(others)) {
		pair := "settings " + own.Digest + " " + others[id]
		if own.Differs == nil || j.said[pair] {
			continue
		}
		host, text, err := j.store.SettingsOf(ctx, id)
		if err != nil || text == "" {
			continue // the next round asks again
		}
		j.first(pair)
		for _, d := range own.Differs(text) {
			j.log.Warn("another daemon of this fleet has another setting that all of them must share: "+d.Breaks,
				zap.String("setting", wire.Printable(d.Setting, 200)),
				zap.String("here", wire.Printable(d.Here, 500)), zap.String("host", j.self.Host),
				zap.String("there", wire.Printable(d.There, 500)), zap.String("other_host", wire.Printable(host, 200)), zap.String("other", id))
		}
	}
}
