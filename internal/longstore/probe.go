package longstore

import (
	"context"

	"github.com/resqued/resqued/internal/rdb"
)

// Probed returns this package's part of a probe of Redis.
func Probed() rdb.Part {
	return rdb.Part{
		Files: Lua,
		Play:  func(ctx context.Context, c *rdb.Client, run rdb.RunName) { New(c).life(ctx, run) },
		Remains: []string{
			keyRun + "1", keyState + "1", keyRun + "2", keyState + "2", keySlices + "1", keySlices + "2", keyCurrent, keyActive, keyEnded, keyLocks,
			keyRun + "3", keyState + "3", keySlices + "3", keyRecurring, keyRecur + "Probe", keySubjects + "Probe", keyStarts + "Probe",
			keyBusy + "probe", keyLine + "probe", keyTenants, keyShares, keyNext, keyHungry, keyStepped,
		},
	}
}

// life calls each script once, with a slice under another job's record. All calls return the rehearsal's error.
func (s *Store) life(ctx context.Context, run rdb.RunName) {
	_, _ = s.AddRuns(ctx, Always, []NewRun{
		{UUID: "1", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"}, {UUID: "2", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"},
	})
	slice := Slice{UUID: "2", Number: 1, Run: run, Share: 2}
	_ = s.Refuse(ctx, Slice{UUID: "2", Number: 1, Run: run, Class: "Probe"})
	_, _ = s.Begin(ctx, slice)
	_, _ = s.Lock(ctx, "probe", run)
	_ = s.Unlock(ctx, "probe", run)
	_, _ = s.Save(ctx, Save{Slice: slice, Op: Completed, Class: "Probe"}) // it does not know the fence
	_ = s.Pause(ctx, "2")
	_ = s.Resume(ctx, Record{UUID: "2", Fields: map[string]string{"class": "Probe", "slice": "1"}})
	_ = s.Cancel(ctx, "2", 0)
	_ = s.Leave(ctx, slice)
	_ = s.Turns(ctx, 0, 9)
	_ = s.Again(ctx, Record{UUID: "1", Fields: map[string]string{"class": "Probe", "slice": "1"}}, false)
	_, _ = s.Forget(ctx, 9)
	_, _ = s.db.Eval(ctx, subjectsScript, s.db.Key(keySubjects)+"Probe", []any{s.db.Prefix, 60000, 1, "recurs"})
	_, _ = s.db.Eval(ctx, recurScript, s.db.Key(keyRecur)+"Probe", []any{
		s.db.Prefix, "Probe", "1", "", "1", 1000, 1000, 9, 0, 60000, 1, "subjects", 1, "3", "recurs", "[]", "plain", "", "probe", Payload("Probe", "3", 1), "0", 1000,
	})
}
