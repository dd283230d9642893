package local

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts"
)

// answers pairs the driver's reasons with what CSI calls them.
var answers = []struct {
	err  error
	code codes.Code
}{
	{errAbsent, codes.NotFound},
	{errDifferent, codes.AlreadyExists},
	{errFull, codes.ResourceExhausted},
	{errDeleting, codes.Aborted},
	{errAcquired, codes.FailedPrecondition},
	{errMounted, codes.FailedPrecondition},
	{errLost, codes.DataLoss},
	{mounts.ErrTaken, codes.AlreadyExists},
	{mounts.ErrBusy, codes.Aborted},
	{mounts.ErrTarget, codes.InvalidArgument},
	{mounts.ErrOutside, codes.InvalidArgument},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// toStatus translates an error of the driver for CSI.
func toStatus(err error) error {
	for _, a := range answers {
		if errors.Is(err, a.err) {
			return status.Error(a.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
