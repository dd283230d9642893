package fsop

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	a := Time{Sec: 1, Nsec: 999_999_999}
	if got := a.Next(); got != (Time{Sec: 2}) {
		t.Errorf("next of %v is %v", a, got)
	}
	if got := (Time{Sec: -1}).Next(); got != (Time{Sec: -1, Nsec: 1}) {
		t.Errorf("next of -1s is %v", got)
	}
	ordered := []Time{{Sec: -2, Nsec: 5}, {Sec: -1}, {Sec: -1, Nsec: 1}, {Sec: 0}, a, a.Next()}
	for i := range ordered {
		for j := range ordered {
			if got := ordered[i].Before(ordered[j]); got != (i < j) {
				t.Errorf("%v before %v is %v", ordered[i], ordered[j], got)
			}
		}
	}
	if got := TimeOf(time.Unix(-5, 7)); got != (Time{Sec: -5, Nsec: 7}) {
		t.Errorf("time of -5s+7ns is %v", got)
	}
}

// TestKinds shows that each kind is exactly one of the three.
func TestKinds(t *testing.T) {
	for k, mk := range constructors {
		if mk == nil {
			continue
		}
		n := 0
		for _, is := range []bool{Kind(k).Mutation(), Kind(k).Control(), Kind(k).Query()} {
			if is {
				n++
			}
		}
		if n != 1 {
			t.Errorf("kind %d is %d of mutation, control and query", k, n)
		}
	}
}

func TestFailure(t *testing.T) {
	err := fmt.Errorf("call: %w", Fail(NoQuorum, "waited %d ms", 10))
	if got := CodeOf(err); got != NoQuorum {
		t.Errorf("code %v", got)
	}
	if CodeOf(errors.New("other")) != 0 || CodeOf(nil) != 0 {
		t.Error("an error that is no failure has a code")
	}
	if !errors.Is(err, &Failure{Code: NoQuorum}) || errors.Is(err, &Failure{Code: Busy}) {
		t.Error("errors.Is does not match by code")
	}
	if got := err.Error(); got != "call: no quorum: waited 10 ms" {
		t.Errorf("message %q", got)
	}
	if got := (&Failure{Code: StateLost}).Error(); got != "replica state lost" {
		t.Errorf("message %q", got)
	}
	for c := Code(1); int(c) < len(codeNames); c++ {
		if codeNames[c] == "" {
			t.Errorf("code %d has no name", c)
		}
	}
	if got := Code(200).String(); got != "failure 200" {
		t.Errorf("unknown code is %q", got)
	}
}

func TestCovers(t *testing.T) {
	attrs := []Attr{{Ino: 7}, {Ino: 8}}
	cases := []struct {
		op   Op
		rep  Reply
		want []Ino
	}{
		{&Lookup{Parent: 3}, Reply{Errno: ENOENT}, []Ino{3}},
		{&Lookup{Parent: 3}, Reply{Attrs: attrs[:1]}, []Ino{3, 7}},
		{&GetAttr{Ino: 7}, Reply{Attrs: attrs[:1]}, []Ino{7}},
		{&Create{Parent: 8}, Reply{Attrs: attrs}, []Ino{7, 8}},
		{&ReadDir{Ino: 3}, Reply{Entries: []DirEntry{{Ino: 4}, {Ino: 5, Attr: &Attr{Ino: 5}}}}, []Ino{3, 5}},
		{&Read{Ino: 7}, Reply{}, []Ino{7}},
		{&ReadMany{Inos: []Ino{7, 8, 9}}, Reply{Attrs: attrs}, []Ino{7, 8}},
		{&ReadLink{Ino: 7}, Reply{}, []Ino{7}},
		{&GetXattr{Ino: 7}, Reply{}, []Ino{7}},
		{&ListXattr{Ino: 7}, Reply{}, []Ino{7}},
		{&StatFSQuery{}, Reply{}, nil},
	}
	for _, c := range cases {
		if got := Covers(c.op, &c.rep); !slices.Equal(got, c.want) {
			t.Errorf("%T: %v, want %v", c.op, got, c.want)
		}
	}
}

func TestAttrIsDir(t *testing.T) {
	if !(&Attr{Mode: TypeDir | 0o755}).IsDir() || (&Attr{Mode: TypeFile | 0o755}).IsDir() {
		t.Error("IsDir does not follow the mode's type")
	}
}

func TestAnswerHead(t *testing.T) {
	r := &Reply{Index: 7, Offset: 3, Data: []byte("some data")}
	split := append(AppendAnswerHead(nil, r), r.Data...)
	if whole := AppendAnswer(nil, &Answer{Reply: r}); !bytes.Equal(whole, split) {
		t.Errorf("in two parts %x, whole %x", split, whole)
	}
}
