package consumer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/server"
)

// scripted answers with what the volume's name asks for.
type scripted struct{}

var held = Acquisition{Volume: "v", Consumer: "c", Name: "v", Path: "/mounts/v", Device: 1<<63 + 1, Inode: 7, Mounted: true}

func (scripted) Acquire(_ context.Context, r Request) (Acquisition, error) {
	switch r.Volume {
	case "v":
		return held, nil
	case "absent":
		return Acquisition{}, fmt.Errorf("volume %s: %w", r.Volume, ErrNotFound)
	case "held":
		return Acquisition{}, fmt.Errorf("%w: other", ErrHeld)
	case "used":
		return Acquisition{}, fmt.Errorf("%w: mounted at /x", ErrInUse)
	case "bad":
		return Acquisition{}, ErrInvalid
	}
	return Acquisition{}, errors.New("disk on fire")
}

func (scripted) Release(_ context.Context, r Request) error {
	if r.Volume == "busy" {
		return status.Error(codes.ResourceExhausted, "later")
	}
	return nil
}

func (scripted) List(context.Context) ([]Acquisition, error) { return []Acquisition{held}, nil }

// TestSocket drives a Service through the socket: same answers, same kinds of
// errors.
func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "consumer")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "consumer.sock")
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, NewServer(scripted{}, zap.NewNop(), nil)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if a, err := c.Acquire(t.Context(), Request{"v", "c"}); err != nil || a != held {
		t.Errorf("acquired %+v, error %v", a, err)
	}
	if l, err := c.List(t.Context()); err != nil || !reflect.DeepEqual(l, []Acquisition{held}) {
		t.Errorf("list %+v, error %v", l, err)
	}
	if err := c.Release(t.Context(), Request{"v", "c"}); err != nil {
		t.Error(err)
	}
	for volume, want := range map[string]struct {
		kind error
		text string
	}{
		"absent": {ErrNotFound, "volume absent: no such volume on this node"},
		"held":   {ErrHeld, "held by another consumer: other"},
		"used":   {ErrInUse, "in use: mounted at /x"},
		"bad":    {ErrInvalid, "invalid request"},
	} {
		_, err := c.Acquire(t.Context(), Request{Volume: volume})
		if !errors.Is(err, want.kind) || err.Error() != want.text {
			t.Errorf("%s: error %v", volume, err)
		}
	}
	if _, err := c.Acquire(t.Context(), Request{Volume: "fire"}); status.Code(err) != codes.Unavailable {
		t.Errorf("an unknown fault is %v", err)
	}
	if err := c.Release(t.Context(), Request{Volume: "busy"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a service's own code is %v", err)
	}
}

// FuzzMessages feeds bytes of a stranger to every message.
func FuzzMessages(f *testing.F) {
	for _, m := range []any{&Request{"v", "c"}, &held, &listAnswer{[]Acquisition{held}}, &listRequest{}, &releaseAnswer{}} {
		b, err := jsonCodec{}.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"device":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []any{new(Request), new(Acquisition), new(listAnswer), new(listRequest), new(releaseAnswer)} {
			if (jsonCodec{}).Unmarshal(b, m) != nil {
				continue
			}
			// What was understood is sent on as it was understood.
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface()
			out, err := jsonCodec{}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := (jsonCodec{}).Unmarshal(out, again); err != nil || !reflect.DeepEqual(m, again) {
				t.Fatalf("%+v became %+v, error %v", m, again, err)
			}
		}
	})
}

// TestMessages holds the bytes of the messages, which two versions share.
func TestMessages(t *testing.T) {
	for want, m := range map[string]any{
		`{"volume":"v","consumer":"c"}`: &Request{"v", "c"},
		`{"acquisitions":[{"volume":"v","consumer":"c","name":"v","path":"/mounts/v","device":9223372036854775809,"inode":7,"mounted":true}]}`: &listAnswer{[]Acquisition{held}},
		`{}`: &releaseAnswer{},
	} {
		if b, err := (jsonCodec{}).Marshal(m); err != nil || string(b) != want {
			t.Errorf("%s, error %v; want %s", b, err, want)
		}
	}
}
