package fsop

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// row is one encoded sample and how it is read back and written again.
type row struct {
	name    string
	value   any
	bytes   []byte
	recode  func([]byte) ([]byte, error)
	decoded func([]byte) (any, error)
}

func makeRow[T any](name string, v *T, enc func([]byte, *T) []byte, dec func([]byte) (*T, error)) row {
	return row{
		name: name, value: v, bytes: enc(nil, v), recode: recoder(enc, dec),
		decoded: func(b []byte) (any, error) { return dec(b) },
	}
}

func recoder[T any](enc func([]byte, *T) []byte, dec func([]byte) (*T, error)) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		v, err := dec(b)
		if err != nil {
			return nil, err
		}
		return enc(nil, v), nil
	}
}

func rowsOf[T any](m map[string]*T, enc func([]byte, *T) []byte, dec func([]byte) (*T, error)) []row {
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, makeRow(name, m[name], enc, dec))
	}
	return rows
}

// goldenRows are all samples, by the file that holds their bytes.
func goldenRows() map[string][]row {
	files := map[string][]row{
		"reply":   rowsOf(sampleReplies(), AppendReply, DecodeReply),
		"message": rowsOf(sampleMessages(), AppendMessage, DecodeMessage),
		"answer":  rowsOf(sampleAnswers(), AppendAnswer, DecodeAnswer),
		"notice":  rowsOf(sampleNotices(), AppendNotice, DecodeNotice),
		"entry":   {makeRow("every logged kind", sampleEntry(), AppendEntry, DecodeEntry)},
	}
	for _, op := range sampleOps() {
		name := fmt.Sprintf("%d %s", op.Kind(), strings.TrimPrefix(fmt.Sprintf("%T", op), "*fsop."))
		files["request"] = append(files["request"], makeRow(name, sampleRequest(op), AppendRequest, DecodeRequest))
	}
	return files
}

// TestGolden holds the byte formats of version 1 fixed.
func TestGolden(t *testing.T) {
	for file, rows := range goldenRows() {
		var b bytes.Buffer
		for _, r := range rows {
			fmt.Fprintf(&b, "%s\n\t%s\n", r.name, hex.EncodeToString(r.bytes))
		}
		path := filepath.Join("testdata", file+".golden")
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o777), os.WriteFile(path, b.Bytes(), 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s differs:\n%s", path, b.Bytes())
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for file, rows := range goldenRows() {
		for _, r := range rows {
			got, err := r.decoded(r.bytes)
			if err != nil {
				t.Errorf("%s %s: %v", file, r.name, err)
				continue
			}
			if !reflect.DeepEqual(got, r.value) {
				t.Errorf("%s %s: got %+v, want %+v", file, r.name, got, r.value)
			}
		}
	}
}

// TestDecodersRefuse cuts, extends and renames the version of every sample.
func TestDecodersRefuse(t *testing.T) {
	for file, rows := range goldenRows() {
		for _, r := range rows {
			refuse := func(what string, b []byte) {
				t.Helper()
				if _, err := r.decoded(b); !errors.Is(err, ErrMalformed) {
					t.Errorf("%s %s %s: error %v", file, r.name, what, err)
				}
			}
			for n := range r.bytes {
				refuse(fmt.Sprintf("cut to %d bytes", n), r.bytes[:n])
			}
			refuse("with trailing byte", append(bytes.Clone(r.bytes), 0))
			other := bytes.Clone(r.bytes)
			other[0] = Version + 1
			refuse("of another version", other)
		}
	}
}

// TestSamplesAreComplete keeps the samples honest: each kind once, and no
// field left zero, so that a field missing in a code method is seen.
func TestSamplesAreComplete(t *testing.T) {
	seen := map[Kind]int{}
	for _, op := range sampleOps() {
		seen[op.Kind()]++
		v := reflect.ValueOf(op).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T.%s is zero", op, v.Type().Field(i).Name)
			}
		}
	}
	for k, mk := range constructors {
		if mk == nil {
			continue
		}
		if seen[Kind(k)] != 1 {
			t.Errorf("kind %d has %d samples", k, seen[Kind(k)])
		}
		if got := mk().Kind(); got != Kind(k) {
			t.Errorf("constructor of kind %d makes kind %d", k, got)
		}
	}
}

// TestCoderRefuses lists encodings that are well formed in every other way.
func TestCoderRefuses(t *testing.T) {
	head := []byte{Version}
	cases := []struct {
		name string
		dec  func([]byte) ([]byte, error)
		body []byte
	}{
		{"integer not in its shortest form", recoder(AppendNotice, DecodeNotice), []byte{1, 0x80, 0, 0, 0}},
		{"integer past 64 bits", recoder(AppendNotice, DecodeNotice), bytes.Repeat([]byte{0xff}, 12)},
		{"integer past 32 bits", recoder(AppendReply, DecodeReply), []byte{0x80, 0x80, 0x80, 0x80, 0x10, 0, 0}},
		{"errno past 4095", recoder(AppendReply, DecodeReply), []byte{0x80, 0x20, 0, 0}},
		{"unknown reply field", recoder(AppendReply, DecodeReply), []byte{0, 0, 0x80, 0x20}},
		{"reply field present and empty", recoder(AppendReply, DecodeReply), []byte{0, 0, byte(hasOffset), 0}},
		{"more inodes than bytes", recoder(AppendNotice, DecodeNotice), []byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}},
		{"more attributes than bytes", recoder(AppendReply, DecodeReply), []byte{0, 0, byte(hasAttrs), 2, 0, 0}},
		{"bool of 2", recoder(AppendRequest, DecodeRequest), []byte{0, 0, 0, 0, 0, byte(KindUnlink), 1, 0, 2}},
		{"unknown operation", recoder(AppendRequest, DecodeRequest), []byte{0, 0, 0, 0, 0, 200}},
		{"operation kind 0", recoder(AppendRequest, DecodeRequest), []byte{0, 0, 0, 0, 0, 0}},
		{"lock of unknown kind", recoder(AppendRequest, DecodeRequest), []byte{0, 0, 0, 0, 0, byte(KindLock), 1, 3, 1, 0, 0, 0, 0}},
		{"lock that ends before it starts", recoder(AppendRequest, DecodeRequest), []byte{0, 0, 0, 0, 0, byte(KindLock), 1, 1, 1, 0, 0, 2, 1}},
		{"stamp of a whole second in nanoseconds", recoder(AppendEntry, DecodeEntry), []byte{0, 0x80, 0x94, 0xeb, 0xdc, 0x03, 0}},
		{"unknown message", recoder(AppendMessage, DecodeMessage), []byte{99}},
		{"unknown answer", recoder(AppendAnswer, DecodeAnswer), []byte{99}},
		{"failure without a code", recoder(AppendAnswer, DecodeAnswer), []byte{answerFailure, 0, 0, 0}},
		{"notice of kind 0", recoder(AppendNotice, DecodeNotice), []byte{0, 0, 0, 0}},
		{"unknown notice", recoder(AppendNotice, DecodeNotice), []byte{99, 0, 0, 0}},
	}
	for _, c := range cases {
		if _, err := c.dec(append(bytes.Clone(head), c.body...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

// TestLimits encodes byte strings at and past what the wire allows.
func TestLimits(t *testing.T) {
	cases := []struct {
		name string
		op   func(n int) Op
		most int
	}{
		{"data", func(n int) Op { return &Write{Data: make([]byte, n)} }, DataMax},
		{"name", func(n int) Op { return &Lookup{Name: make([]byte, n)} }, nameWireMax},
		{"value", func(n int) Op { return &SetXattr{Value: make([]byte, n)} }, 2 * XattrSizeMax},
		{"target", func(n int) Op { return &Create{Target: make([]byte, n)} }, 2 * nameWireMax},
	}
	for _, c := range cases {
		if _, err := DecodeRequest(AppendRequest(nil, &Request{Op: c.op(c.most)})); err != nil {
			t.Errorf("%s of %d bytes: %v", c.name, c.most, err)
		}
		if _, err := DecodeRequest(AppendRequest(nil, &Request{Op: c.op(c.most + 1)})); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s of %d bytes: error %v", c.name, c.most+1, err)
		}
	}
}

// TestAppendKeepsPrefix shows that encoders append.
func TestAppendKeepsPrefix(t *testing.T) {
	got := AppendRequest([]byte("head"), sampleRequest(&Nop{}))
	if !bytes.HasPrefix(got, []byte("head")) {
		t.Fatalf("prefix lost: %q", got)
	}
	if _, err := DecodeRequest(got[4:]); err != nil {
		t.Fatal(err)
	}
}

// TestLongDetail shows that a failure always reaches the other side.
func TestLongDetail(t *testing.T) {
	a, err := DecodeAnswer(AppendAnswer(nil, &Answer{Failure: Fail(Busy, "%s", strings.Repeat("x", 10_000))}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(a.Failure.Detail); n != detailMax {
		t.Fatalf("detail has %d bytes, want %d", n, detailMax)
	}
}

// TestEncodeInvalidPanics shows that a value that no decoder would take is
// never written: an entry that can't be read back would stop every replica.
func TestEncodeInvalidPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("nanoseconds past a second were encoded")
		}
	}()
	AppendEntry(nil, &Entry{Stamp: Time{Nsec: 1e9}})
}

func fuzz(f *testing.F, file string) {
	rows := goldenRows()[file]
	for _, r := range rows {
		f.Add(r.bytes)
	}
	recode := rows[0].recode
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := recode(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v is not ErrMalformed", err)
			}
			return
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("decoded %x\nencoded %x", b, out)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) { fuzz(f, "request") }
func FuzzDecodeReply(f *testing.F)   { fuzz(f, "reply") }
func FuzzDecodeEntry(f *testing.F)   { fuzz(f, "entry") }
func FuzzDecodeMessage(f *testing.F) { fuzz(f, "message") }
func FuzzDecodeAnswer(f *testing.F)  { fuzz(f, "answer") }
func FuzzDecodeNotice(f *testing.F)  { fuzz(f, "notice") }

func FuzzDecodeAhead(f *testing.F) {
	for _, o := range sampleMessages()["stream"].Stream.Ops {
		f.Add(AppendAhead(nil, o))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeAhead(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v is not ErrMalformed", err)
			}
			return
		}
		if out := AppendAhead(nil, o); !bytes.Equal(out, b) {
			t.Fatalf("decoded %x\nencoded %x", b, out)
		}
	})
}

// TestStreamIsOneMessage holds AppendStream, which takes encoded operations, and
// AppendMessage together.
func TestStreamIsOneMessage(t *testing.T) {
	m := sampleMessages()["stream"]
	var ops [][]byte
	for _, o := range m.Stream.Ops {
		ops = append(ops, AppendAhead(nil, o))
	}
	if got, want := AppendStream(nil, m.Stream, ops), AppendMessage(nil, m); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// BenchmarkRequest is the cost of one 4 KiB write on the wire.
func BenchmarkRequest(b *testing.B) {
	req := sampleRequest(&Write{Ino: 7, Offset: 4096, Data: make([]byte, 4096)})
	buf := make([]byte, 0, 8192)
	for b.Loop() {
		buf = AppendRequest(buf[:0], req)
		if _, err := DecodeRequest(buf); err != nil {
			b.Fatal(err)
		}
	}
}
