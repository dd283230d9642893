package consumer

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// The service's name; a change that is not compatible gets a new version.
const (
	serviceName   = "tak_replicated.local.consumer.v1.Consumer"
	acquireMethod = "/" + serviceName + "/Acquire"
	releaseMethod = "/" + serviceName + "/Release"
	listMethod    = "/" + serviceName + "/List"
)

// Empty messages, and a list.
type (
	listRequest   struct{}
	releaseAnswer struct{}
	listAnswer    struct {
		Acquisitions []Acquisition `json:"acquisitions"`
	}
)

// jsonCodec carries messages as JSON objects.
type jsonCodec struct{}

var _ encoding.Codec = jsonCodec{}

func (jsonCodec) Name() string { return "tak-json" }

func (jsonCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("message is not what %s expects: %w", serviceName, err)
	}
	return nil
}

// kinds pairs what crosses the socket.
var kinds = []struct {
	err  error
	code codes.Code
}{
	{ErrNotFound, codes.NotFound},
	{ErrHeld, codes.AlreadyExists},
	{ErrInUse, codes.FailedPrecondition},
	{ErrInvalid, codes.InvalidArgument},
}

// toStatus translates what a Service says for the socket.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return status.Error(k.code, err.Error())
		}
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// refusal is an error that came over the socket: its text is the server's, its
// kind is one of the four.
type refusal struct {
	text string
	kind error
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.kind }

// fromStatus translates back.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, k := range kinds {
		if s.Code() == k.code {
			return refusal{s.Message(), k.err}
		}
	}
	return err
}
