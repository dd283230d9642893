package kube

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrOldSchema says that the cluster's ReplicatedVolume resource is of an
// older release and lacks fields that are needed.
var ErrOldSchema = errors.New("the cluster's ReplicatedVolume resource is of an older release")

// NotFound reports that a thing is not there, by the server's own word: a 404 of what is
// between here and the server is Uncertain.
func NotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// NotServed reports a 404 that is about no thing: the server knows no such kind, or something else
// has answered. Ask it only about what an answer of the server itself has come with.
func NotServed(err error) bool { return apierrors.IsNotFound(err) && !NotFound(err) }

// AlreadyExists reports that a thing of that name is there already.
func AlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }

// Conflict reports that a thing has changed since it was looked at.
func Conflict(err error) bool { return apierrors.IsConflict(err) }

// Invalid reports that the server refuses the object's content.
func Invalid(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// Forbidden reports that the account may not do that.
func Forbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// Uncertain reports an error after which nobody knows whether the call had an
// effect, or what is there: the server did not answer, or answered that it can't now.
func Uncertain(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

func ignore(err error, what func(error) bool) error {
	if what(err) {
		return nil
	}
	return err
}
