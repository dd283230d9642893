package local

import (
	"bytes"
	"os"
	"testing"
	"time"
)

func sampleRecord() *record {
	return &record{
		Version: 1, ID: "pvc-1", Name: "pvc-1", CapacityBytes: 1 << 30, Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		AcquiredBy: "replica-host", Acquired: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}

// TestRecordFormat holds the bytes of a record.
func TestRecordFormat(t *testing.T) {
	want, err := os.ReadFile("testdata/record-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := sampleRecord().encode()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("record %s, error %v", got, err)
	}
	r, err := decodeRecord(want)
	if err != nil || *r != *sampleRecord() {
		t.Errorf("record %+v, error %v", r, err)
	}
	for _, bad := range []string{
		"", "{}", "null", `{"version":2,"id":"a","name":"a"}`, `{"version":1,"id":"a","name":"b"}`, `{"version":1,"id":"../a","name":"../a"}`,
		`{"version":1,"id":"a","name":"a","capacityBytes":-1}`, `{"version":1,"id":"a","name":"a","later":true}`, `{"version":1,"id":"a","name":"a"}{}`,
	} {
		if r, err := decodeRecord([]byte(bad)); err == nil {
			t.Errorf("%s was read as %+v", bad, r)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	b, err := sampleRecord().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"id":"a","name":"a","deleting":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if !validID(r.ID) {
			t.Fatalf("handle %q", r.ID)
		}
		out, err := r.encode()
		if err != nil {
			t.Skip() // a time that JSON can't say again
		}
		if again, err := decodeRecord(out); err != nil || again.ID != r.ID || again.Deleting != r.Deleting || again.AcquiredBy != r.AcquiredBy {
			t.Fatalf("%+v became %+v, error %v", r, again, err)
		}
	})
}
