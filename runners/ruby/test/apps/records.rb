# frozen_string_literal: true

require "resqued/long_job/active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE"))
ActiveRecord::Base.connection.execute("PRAGMA synchronous = OFF") if ENV["DATABASE"].start_with?("sqlite")

class ApplicationRecord < ActiveRecord::Base
  self.abstract_class = true
end

class Shop < ApplicationRecord
  has_many :events
end

class Event < ApplicationRecord
  belongs_to :shop, optional: true
  before_destroy do
    sleep 0.6 if name == "slow"
    puts "visited #{id}"
    throw :abort if name == "kept"
  end
end

class Log < ApplicationRecord
  self.primary_key = "name"
end

class Pair < ApplicationRecord
  self.primary_key = nil
end

# Calls a relation as the test says.
class Scanned
  extend Resqued::LongJob

  def self.long_job_perform(run, how, count = 1)
    case how
    when "delete" then count.times { Event.where(name: "old").order(:name).scan_delete }
    when "joined" then Event.joins(:shop).where(shops: { name: "north" }).scan_delete(:north)
    when "association" then Shop.find_by!(name: "north").events.scan_delete
    when "destroy" then Event.where.not(name: "new").scan_destroy
    when "review" then Event.where(name: "old").reviewing_select_loop { |event| event.update!(name: "new", shop_id: run.slice) }
    when "stuck" then review_one
    when "texts" then Log.all.scan_destroy
    when "limit" then Event.limit(3).scan_delete
    when "no key" then Pair.all.scan_delete
    end
  end

  # One record keeps matching.
  def self.review_one
    Event.where(name: "old").reviewing_select_loop do |event|
      puts "visited #{event.id}"
      event.update!(name: "new") unless event.id == 1
    end
  end
end

class Outside
  def self.perform
    Event.all.scan_delete
  end
end

# Makes the tables, and fills them.
class Setup
  def self.perform(rows)
    db = ActiveRecord::Base.connection
    db.create_table(:shops, force: true) { |t| t.string :name }
    db.create_table(:events, force: true) do |t|
      t.string :name
      t.integer :shop_id
    end
    db.create_table(:logs, id: false, force: true) { |t| t.string :name, primary_key: true }
    db.create_table(:pairs, id: false, force: true) { |t| t.integer :a }
    Shop.insert_all!([{ id: 1, name: "south" }, { id: 2, name: "north" }])
    Log.insert_all!(%w[b A ö Z 10 9].map { |name| { name: name } })
    Event.insert_all!(rows.map { |id, name, shop| { id: id, name: name, shop_id: shop } }) if rows.any?
  end
end

class Insert
  def self.perform(id)
    Event.insert({ id: id, name: "old" }) # unless it is there
  end
end

class Sql
  def self.perform(text)
    puts "", ActiveRecord::Base.connection.select_values(text).join(" ")
  end
end
