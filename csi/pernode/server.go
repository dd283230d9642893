package pernode

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/server"
)

// Server returns a server of d's CSI services, for [server.Serve]. ready says why
// the driver can't serve; observe may be nil.
func (d *Driver) Server(log *zap.Logger, observe server.Observer, ready func() error) *grpc.Server {
	s := server.New(log, observe)
	csi.RegisterIdentityServer(s, identity(ready))
	csi.RegisterNodeServer(s, NewNode(d))
	return s
}

// identity is the driver's. It has no controller service: nothing is provisioned.
func identity(ready func() error) *server.Identity {
	return &server.Identity{Driver: Name, Ready: ready}
}

// answers pairs the driver's reasons with what CSI calls them.
var answers = []struct {
	err  error
	code codes.Code
}{
	{errNoAnswer, codes.Unavailable},
	{errHandle, codes.InvalidArgument},
	{errNoCopy, codes.NotFound},
	{ErrNoPV, codes.NotFound},
	{ErrManyPVs, codes.FailedPrecondition},
	{errMounted, codes.FailedPrecondition},
	{mounts.ErrTaken, codes.AlreadyExists},
	{mounts.ErrBusy, codes.Aborted},
	{mounts.ErrTarget, codes.InvalidArgument},
	{mounts.ErrOutside, codes.InvalidArgument},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// toStatus translates an error of the driver for CSI.
func toStatus(err error) error {
	var held heldError
	if errors.As(err, &held) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			return status.Error(a.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
