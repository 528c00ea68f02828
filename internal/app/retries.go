package app

import (
	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
)

func classRetry(r *config.HandlerRetry) *resqued.Retry {
	if r == nil {
		return nil
	}
	return &resqued.Retry{
		Attempts: r.Attempts, Backoff: r.Backoff, Base: r.Base, Max: r.Max,
		RetryOn: retryErrors(r.RetryOn), NeverOn: retryErrors(r.NeverOn),
		IgnoreDeaths: r.IgnoreDeaths, ExpireAfter: r.ExpireAfter,
	}
}

func retryErrors(e config.HandlerErrors) resqued.Errors {
	return resqued.Errors{Exceptions: e.Exceptions, Messages: e.Messages, ExitCodes: e.ExitCodes}
}
