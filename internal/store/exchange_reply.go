package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
)

// The number of parts of a reply before the jobs, on the fast path and otherwise.
const fastHeader, slowHeader = 2, 10

func parseExchange(raw any, completions []Completion, wants []Want) (ExchangeReply, error) {
	list, ok := raw.([]any)
	if !ok || len(list) == 0 {
		return ExchangeReply{}, fmt.Errorf("script exchange: unexpected reply %T", raw)
	}
	if list[0] == "FENCED" {
		return ExchangeReply{}, ErrFenced
	}
	first, _ := list[0].(string)
	marks, fast := strings.CutPrefix(first, "+")
	header := slowHeader
	if fast {
		header = fastHeader
	}
	if len(list) < header || !fast && (len(list)-header)%2 != 0 || fast && len(list)-header > len(wants) {
		return ExchangeReply{}, fmt.Errorf("script exchange: reply of %d parts", len(list))
	}
	reply := ExchangeReply{}
	var reasons, lined []string
	if fast {
		reply.More = rdb.Number(list[1]) == 1
	} else {
		marks, _ = list[3].(string)
		reasons = rdb.Texts(list[4])
		reply.Bounced, reply.More = int(rdb.Number(list[1])), rdb.Number(list[2]) == 1
		reply.WrongType, reply.OutOfStep = rdb.Texts(list[5]), rdb.Texts(list[6])
		unnamed := rdb.Texts(list[7])
		for i := 0; i+1 < len(unnamed); i += 2 {
			reply.Unnamed = append(reply.Unnamed, LockName{Queue: unnamed[i], Payload: []byte(unnamed[i+1])})
		}
		reply.Suspects, lined = int(rdb.Number(list[8])), rdb.Texts(list[9])
	}
	if len(marks) != len(completions) {
		return ExchangeReply{}, fmt.Errorf("script exchange: %d answers for %d completions", len(marks), len(completions))
	}
	reply.Applied = make([]bool, len(completions))
	order := plainFirst(completions)
	for at := range completions {
		i, mark := order.index(at), marks[at]
		reply.Applied[i] = mark == '1' || mark == 'u' || mark == 'p'
		if mark == 'u' {
			reply.Duplicates = append(reply.Duplicates, i)
		}
		if mark == 'x' || mark == 'p' {
			if reply.Stuck == nil {
				reply.Stuck, reply.Parked = map[int]string{}, map[int]string{}
			}
			reason := "unknown reason"
			if len(reasons) > 0 {
				reason, reasons = reasons[0], reasons[1:]
			}
			if mark == 'x' {
				reply.Stuck[i] = reason
			} else {
				reply.Parked[i] = reason
			}
		}
	}
	if len(reasons) > 0 {
		reply.Unlockable = reasons[0]
	}
	step := 2
	if fast {
		step = 1
	}
	reply.Jobs = make([]Reserved, 0, (len(list)-header)/step)
	for i := header; i < len(list); i += step {
		record, _ := list[i+step-1].(string)
		var token string
		if fast {
			token = wants[i-header].Token
		} else {
			token, _ = list[i].(string)
		}
		job, err := ParseRecord(token, record)
		if err != nil {
			return ExchangeReply{}, err
		}
		job.Lined = fast && rdb.Number(list[1]) == 2 || slices.Contains(lined, token)
		reply.Jobs = append(reply.Jobs, job)
	}
	return reply, nil
}
