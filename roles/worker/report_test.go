package worker

import (
	"encoding/json"
	"errors"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

func TestReadReport(t *testing.T) {
	text, err := json.Marshal(Report{Replica: "replica-1", Term: 3, Role: "coordinator"})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := readReport(fsop.AppendAnswer(nil, &fsop.Answer{Reply: &fsop.Reply{Data: text}}))
	if err != nil || rep.Replica != "replica-1" || rep.Term != 3 {
		t.Errorf("read %+v, %v", rep, err)
	}
	_, err = readReport(fsop.AppendAnswer(nil, &fsop.Answer{Failure: fsop.Fail(fsop.Denied, "no")}))
	if fsop.CodeOf(err) != fsop.Denied {
		t.Errorf("a failure gives %v", err)
	}
	for _, a := range []*fsop.Answer{{Kept: &fsop.Kept{}}, {Reply: &fsop.Reply{Data: []byte("{")}}} {
		if _, err := readReport(fsop.AppendAnswer(nil, a)); err == nil {
			t.Errorf("read a report from %+v", a)
		}
	}
	if _, err := readReport(nil); !errors.Is(err, fsop.ErrMalformed) {
		t.Errorf("nothing gives %v", err)
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add(fsop.AppendAnswer(nil, &fsop.Answer{Reply: &fsop.Reply{Data: []byte(`{"replica":"r"}`)}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if rep, err := readReport(b); (rep == nil) == (err == nil) {
			t.Errorf("report %v with error %v", rep, err)
		}
	})
}
