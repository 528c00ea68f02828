module github.com/youtube/vitess

go 1.26.0
