package coord_test

import (
	"context"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// answered is a connection that waits for one answer.
type answered chan *fsop.Answer

func (a answered) ReplyParts(_ uint64, release func(), parts ...[]byte) {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	if release != nil {
		release()
	}
	ans, err := fsop.DecodeAnswer(b)
	if err != nil {
		panic(err)
	}
	a <- ans
}
func (answered) Push([]byte) {}
func (answered) Close()      {}

func (w *world) operate(operator bool, op fsop.Op) *fsop.Answer {
	w.t.Helper()
	a := make(answered, 1)
	l := w.replicas[w.leader].coord.Open(a, "operator")
	if operator {
		coord.MakeOperator(l)
	}
	l.Request(1, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageOperate, Operate: &fsop.Operate{Op: op}}))
	select {
	case ans := <-a:
		return ans
	case <-time.After(10 * time.Second):
		w.t.Fatal("no answer")
		return nil
	}
}

// TestSealedVolumeTakesNoSessions has an operator close a volume that is to be
// destroyed (CONTRACT D14).
func TestSealedVolumeTakesNoSessions(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	a.create("x")
	for _, c := range []struct {
		operator bool
		op       fsop.Op
	}{{false, &fsop.Seal{}}, {true, &fsop.EvictSession{Session: 1}}, {true, &fsop.Create{Parent: fsop.Root, Name: []byte("y")}}} {
		if ans := w.operate(c.operator, c.op); ans.Failure == nil || ans.Failure.Code != fsop.Denied {
			t.Errorf("%T of operator %v: %+v", c.op, c.operator, ans)
		}
	}
	if ans := w.operate(true, &fsop.SetLimits{Bytes: 1 << 30}); ans.Reply == nil || ans.Reply.Errno != fsop.OK {
		t.Fatalf("limits: %+v", ans)
	}
	if ans := w.operate(true, &fsop.Seal{}); ans.Reply == nil || ans.Reply.Errno != fsop.EBUSY || string(ans.Reply.Data) != "a" {
		t.Fatalf("with a session: %+v", ans)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if ans := w.operate(true, &fsop.Seal{}); ans.Reply == nil || ans.Reply.Errno != fsop.OK {
		t.Fatalf("without: %+v", ans)
	}
	b := w.mount("b", client.NewMemLedger())
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.Call(ctx, &fsop.Request{Op: &fsop.GetAttr{Ino: fsop.Root}}); err == nil {
		t.Error("a sealed volume was mounted")
	}
	w.elect(1, true)
	for deadline := time.Now().Add(10 * time.Second); ; {
		ans := w.operate(true, &fsop.Seal{})
		if ans.Reply != nil && ans.Reply.Errno == fsop.OK {
			break
		}
		if ans.Failure == nil || ans.Failure.Code != fsop.NotCoordinator || time.Now().After(deadline) {
			t.Fatalf("by the next coordinator: %+v", ans)
		}
	}
	b.kill()
	w.settle()
}
