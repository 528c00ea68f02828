CREATE TABLE reports (id bigint, body text, fence bigint);
