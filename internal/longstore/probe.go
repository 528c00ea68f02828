package longstore

import (
	"context"

	"github.com/resqued/resqued/internal/rdb"
)

// Probed is the part that the scripts of this package have in a probe of Redis.
func Probed() rdb.Part {
	return rdb.Part{
		Files: Lua,
		Play:  func(ctx context.Context, c *rdb.Client, run rdb.RunName) { New(c).life(ctx, run) },
		Remains: []string{
			keyLongRun + "1", keyLongState + "1", keyLongRun + "2", keyLongState + "2", keyLongCurrent, keyLongActive, keyLongEnded, keyLongLocks,
			keyLongRun + "3", keyLongState + "3", keyLongRecurring, keyLongRecur + "Probe", keyLongSubjects + "Probe", keyLongStarts + "Probe",
			keyLongBusy + "probe", keyLongLine + "probe", keyLongTenants, keyLongShares,
		},
	}
}

// life is that of long jobs, whose slice runs under the record of another job. The errors
// are those of the rehearsal.
func (s *Store) life(ctx context.Context, run rdb.RunName) {
	_, _ = s.AddLongRuns(ctx, LongAlways, []NewLongRun{
		{UUID: "1", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"}, {UUID: "2", Kind: "probe", Class: "Probe", Args: []byte("[]"), Queue: "plain", Tenant: "probe"},
	})
	slice := LongSlice{UUID: "2", Slice: 1, Run: run, Share: 2}
	_, _ = s.LongBegin(ctx, slice)
	_, _ = s.LongLock(ctx, "probe", run)
	_ = s.LongUnlock(ctx, "probe", run)
	_, _ = s.LongSave(ctx, LongSave{LongSlice: slice, Op: LongCompleted, Class: "Probe"}) // it does not know the fence
	_ = s.LongCancel(ctx, "2", 0)
	_ = s.LongLeave(ctx, slice)
	_ = s.LongTurns(ctx, 0, 9)
	_ = s.LongAgain(ctx, LongRecord{UUID: "1", Fields: map[string]string{"class": "Probe", "slice": "1"}}, false)
	_, _ = s.LongForget(ctx, 9)
	_, _ = s.db.Eval(ctx, longSubjectsScript, s.db.Key(keyLongSubjects)+"Probe", []any{s.db.Prefix, 60000, 1, "recurs"})
	_, _ = s.db.Eval(ctx, longRecurScript, s.db.Key(keyLongRecur)+"Probe", []any{
		s.db.Prefix, "Probe", "1", "", "1", 1000, 1000, 9, 0, 60000, 1, "subjects", 1, "3", "recurs", "[]", "plain", "", "probe", LongPayload("Probe", "3", 1), "0", 1000,
	})
}
