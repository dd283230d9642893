package replicated

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// codeOf says what is answered to CSI for each kind of error.
var codeOf = map[Kind]codes.Code{
	Unknown:    codes.Unavailable,
	Refused:    codes.InvalidArgument,
	NoCapacity: codes.ResourceExhausted,
	Different:  codes.AlreadyExists,
	Pending:    codes.Aborted,
	InUse:      codes.FailedPrecondition,
	Missing:    codes.NotFound,
}

// toStatus translates an error of Volumes.
func toStatus(err error) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return status.Error(codeOf[own.Kind], own.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}
