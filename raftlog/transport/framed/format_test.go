package framed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"
)

func heapAllocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// The bytes of version 1; they never change.
func TestGoldenBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"preface peer-message": {AppendPreface(nil, KindPeerMessage), "54414b52" + "01" + "01" + "0000"},
		"preface operator":     {AppendPreface(nil, KindOperator), "54414b52" + "01" + "04" + "0000"},
		"greeting welcome":     {appendGreeting(nil, CodeWelcome, ""), "54414b52" + "01" + "00" + "0000"},
		"greeting refusal":     {appendGreeting(nil, CodeRole, "no"), "54414b52" + "01" + "03" + "0200" + "6e6f"},
		"header": {AppendHeader(nil, Header{Length: 0x01020304, Type: 5, ID: 0x1112131415161718}),
			"04030201" + "05" + "000000" + "1817161514131211"},
	} {
		if got := hex.EncodeToString(tc.got); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestHeaderRefusals(t *testing.T) {
	good := AppendHeader(nil, Header{Length: 10, Type: 1, ID: 9})
	for i := 5; i < 8; i++ {
		bad := bytes.Clone(good)
		bad[i] = 1
		if _, err := ParseHeader(bad, 100); !errors.Is(err, ErrBadHeader) {
			t.Errorf("byte %d set: %v", i, err)
		}
	}
	if _, err := ParseHeader(good[:15], 100); !errors.Is(err, ErrBadHeader) {
		t.Errorf("short: %v", err)
	}
	if _, err := ParseHeader(good, 9); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("long: %v", err)
	}
	if _, err := ParseHeader(good, 10); err != nil {
		t.Errorf("fitting: %v", err)
	}
}

func TestGreetingText(t *testing.T) {
	long := appendGreeting(nil, CodeBusy, strings.Repeat("x", 9000))
	var refused *RefusedError
	if err := readGreeting(bytes.NewReader(long)); !errors.As(err, &refused) || len(refused.Text) != greetingTextMost {
		t.Fatalf("long text: %v", err)
	}
	tricky := appendGreeting(nil, CodeBusy, "a\x1b[31m\nb\xff")
	if err := readGreeting(bytes.NewReader(tricky)); !errors.As(err, &refused) || refused.Text != "a.[31m.b." {
		t.Fatalf("tricky text: %v", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{Length: 10, Type: 1, ID: 9}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b, 1<<20)
		if err != nil {
			return
		}
		if h.Length > 1<<20 || !bytes.Equal(AppendHeader(nil, h), b) {
			t.Fatalf("%x is read as %+v", b, h)
		}
	})
}

func FuzzPreface(f *testing.F) {
	f.Add(AppendPreface(nil, KindClient))
	f.Add([]byte("TAKR\x02\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParsePreface(b)
		if err == nil && !bytes.Equal(AppendPreface(nil, k), b) {
			t.Fatalf("%x is read as %v", b, k)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add(appendGreeting(nil, CodeWelcome, ""))
	f.Add(appendGreeting(nil, CodeRole, "no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		err := readGreeting(bytes.NewReader(b))
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && len(refused.Text) > 3*greetingTextMost {
			t.Fatalf("text of %d bytes", len(refused.Text))
		}
	})
}
