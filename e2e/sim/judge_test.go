package sim

import (
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestSyncOfALostChange: what another mount synced must not be lost, unless its session
// had ended before: then it never happened (seed 7841).
func TestSyncOfALostChange(t *testing.T) {
	a, b := &simClient{}, &simClient{}
	for name, c := range map[string]struct {
		ended int64 // 0: the session goes on
		fault bool
	}{
		"its session goes on":         {0, true},
		"its session ends thereafter": {9, true},
		"its session has ended":       {7, false},
	} {
		h, s := newHistory(), newStreams(&Counts{}, func(uint64) {})
		h.ops = []*record{{call: 1, ret: 2, in: input{kind: doChmod, ino: 5}, mount: a, asked: 1, ahead: number{1, 20}}}
		h.syncs = []*syncing{{mount: b, ino: 5, call: 6, ret: 8}}
		if c.ended > 0 {
			h.ends[1] = c.ended
		}
		if err := h.checkSyncs(s); (err != nil) != c.fault || err != nil && !strings.Contains(err.Error(), "another mount synced") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnansweredOnALostFile: an operation without an answer, on a file whose creation was
// lost with its session, may never have happened (seed 8064).
func TestUnansweredOnALostFile(t *testing.T) {
	in := &input{kind: doSetXattr, ino: 4102}
	for _, c := range []struct {
		out output
		ok  bool
	}{{output{unknown: true}, true}, {output{errno: fsop.ESTALE}, true}, {output{}, false}} {
		if ok, _ := new(state).step(in, &c.out, false); ok != c.ok {
			t.Errorf("%+v fits: %v", c.out, ok)
		}
	}
}
