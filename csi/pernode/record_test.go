package pernode

import (
	"bytes"
	"os"
	"reflect"
	"testing"
	"time"

	"tak-os.org/tak-replicated/csi/names"
)

func sampleRecord() *record {
	return &record{Version: 1, Handle: handle, PV: pvA, Hold: &hold{
		Pod: pod1, Targets: []string{"/var/lib/kubelet/pods/pod-1/volumes/kubernetes.io~csi/example-store/mount"},
		Boot: "0d0f", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}}
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
	if err != nil || !reflect.DeepEqual(r, sampleRecord()) {
		t.Errorf("record %+v, error %v", r, err)
	}
	for _, bad := range []string{
		"", "{}", "null", `{"version":2,"handle":"a","pv":{"name":"a","uid":"b"}}`, `{"version":1,"handle":"../a","pv":{"name":"a","uid":"b"}}`,
		`{"version":1,"handle":"a","pv":{"name":"a","uid":""}}`, `{"version":1,"handle":"a","pv":{"name":"a","uid":"../b"}}`,
		`{"version":1,"handle":"a","pv":{"name":"a","uid":"b"},"hold":{}}`, `{"version":1,"handle":"a","pv":{"name":"a","uid":"b"},"later":1}`,
		`{"version":1,"handle":"a","pv":{"name":"a","uid":"b"}} x`,
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
	f.Add([]byte(`{"version":1,"handle":"a","pv":{"name":"a","uid":"b"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if !names.Subdomain(r.Handle) || !names.Subdomain(r.PV.UID) || r.Hold != nil && len(r.Hold.Targets) == 0 {
			t.Fatalf("record %+v", r)
		}
		out, err := r.encode()
		if err != nil {
			t.Skip() // a time that JSON can't say again
		}
		again, err := decodeRecord(out)
		if err != nil || again.Handle != r.Handle || again.PV != r.PV || (again.Hold == nil) != (r.Hold == nil) {
			t.Fatalf("%+v became %+v, error %v", r, again, err)
		}
	})
}
