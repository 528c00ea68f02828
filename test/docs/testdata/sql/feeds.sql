CREATE TABLE feeds (id bigint, body text, fence bigint);
