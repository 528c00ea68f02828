# An application in Ruby whose classes runners perform: the program is copied out of the image of
# resqued (Dockerfile), the configuration is the application's own resqued.yaml.
FROM resqued AS resqued

FROM ruby:3.4-slim
COPY --from=resqued /usr/local/bin/resqued /usr/local/bin/resqued
WORKDIR /app
COPY Gemfile Gemfile.lock ./
RUN bundle install
COPY . .
USER 65532:65532
STOPSIGNAL SIGQUIT
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD ["resqued", "health", "--alive"]
CMD ["resqued", "work"]
