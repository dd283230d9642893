package worker

import (
	"bytes"
	"reflect"
	"testing"

	"tak-os.org/tak-replicated/fusefs/tree"
)

func TestScrubEntries(t *testing.T) {
	for _, want := range []scrubEntry{
		{kind: scrubMarker},
		{kind: scrubMarker, lo: []byte("a"), hi: []byte{'b', 0}},
		{kind: scrubFinding, index: 7, sum: digest{1, 2, 3}},
	} {
		b := want.encode()
		got, err := decodeScrub(b)
		if err != nil || got.kind != want.kind || !bytes.Equal(got.lo, want.lo) || !bytes.Equal(got.hi, want.hi) || got.index != want.index || got.sum != want.sum {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		for _, bad := range [][]byte{b[:len(b)-1], append(bytes.Clone(b), 0), append([]byte("takscrub\x02"), b[9:]...)} {
			if _, err := decodeScrub(bad); err == nil {
				t.Errorf("%q is taken", bad)
			}
		}
	}
}

func FuzzDecodeScrub(f *testing.F) {
	for _, e := range []scrubEntry{{kind: scrubMarker, lo: []byte("a"), hi: []byte("b")}, {kind: scrubFinding, index: 7}} {
		f.Add(e.encode())
	}
	f.Add(mendRequest{1, 2, 3}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeScrub(b); err == nil && !bytes.Equal(e.encode(), b) {
			t.Errorf("%q became %+v", b, e)
		}
		if r, err := decodeMendRequest(b); err == nil && !bytes.Equal(r.encode(), b) {
			t.Errorf("%q became %+v", b, r)
		}
		if pages, err := readPages(bytes.NewReader(b), 2); err == nil && len(pages) != 2 {
			t.Errorf("%d pages", len(pages))
		}
	})
}

func TestRunsOf(t *testing.T) {
	got := runsOf([]tree.BadPage{{Ino: 5, Page: 1}, {Ino: 5, Page: 2}, {Ino: 5, Page: 4}, {Ino: 6, Page: 5}})
	want := []mendRequest{{5, 1, 2}, {5, 4, 1}, {6, 5, 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}
