-- Which flights arrive more than 15 minutes late? One model per carrier, from SQL.

-- Flights with the weather at departure.
CREATE OR REPLACE VIEW departures AS
SELECT flights.*, precip, wind_speed, visib
FROM flights LEFT JOIN weather USING (year, month, day, hour, origin);

-- What will run, and why.
EXPLAIN TRAIN OR REPLACE MODEL delays
USING logistic_regression
PREDICT arr_delay > 15 AS late
FEATURES (
  zscore(dep_delay, distance, air_time),
  zscore(impute(precip), impute(wind_speed), impute(visib)),
  onehot(origin),
  sin(hour * 2 * pi() / 24) AS hour_sin,
  cos(hour * 2 * pi() / 24) AS hour_cos
)
FROM departures
WHERE arr_delay IS NOT NULL
GROUP BY carrier
OVER GRID (l1 IN (0, 0.1, 1), l2 IN (0.1, 1, 10, 100))
VALIDATE WHERE month = 12
OPTIMIZE auc;

-- One model per carrier and configuration: the best of each carrier comes back.
TRAIN OR REPLACE MODEL delays
USING logistic_regression
PREDICT arr_delay > 15 AS late
FEATURES (
  zscore(dep_delay, distance, air_time),
  zscore(impute(precip), impute(wind_speed), impute(visib)),
  onehot(origin),
  sin(hour * 2 * pi() / 24) AS hour_sin,
  cos(hour * 2 * pi() / 24) AS hour_cos
)
FROM departures
WHERE arr_delay IS NOT NULL
GROUP BY carrier
OVER GRID (l1 IN (0, 0.1, 1), l2 IN (0.1, 1, 10, 100))
VALIDATE WHERE month = 12
OPTIMIZE auc;

-- The model is a table.
SELECT name, round(valid_auc, 3) AS auc, round(valid_log_loss, 3) AS log_loss, l1, l2, n_rows
FROM delays JOIN airlines USING (carrier)
WHERE is_best
ORDER BY auc DESC;

-- So are its weights.
SELECT feature, round(avg(weight), 2) AS mean_weight, round(min(weight), 2) AS least, round(max(weight), 2) AS most
FROM delays_weights JOIN delays USING (carrier, l1, l2)
WHERE is_best
GROUP BY feature
ORDER BY abs(mean_weight) DESC;

-- Predictions are SQL, in any DuckDB client.
SELECT carrier, flight, origin, dest, dep_delay, arr_delay, prediction, round(probability, 3) AS probability
FROM delays_predict(departures)
WHERE month = 12 AND day = 24 AND dep_delay BETWEEN 5 AND 20
ORDER BY probability DESC
LIMIT 8;

-- Three airports on two workers: gap splits the rows of one airport between them. Planned beside measured.
EXPLAIN ANALYZE TRAIN OR REPLACE MODEL delays_by_airport
USING logistic_regression
PREDICT arr_delay > 15 AS late
FEATURES (zscore(dep_delay, distance, air_time))
FROM flights
WHERE arr_delay IS NOT NULL
GROUP BY origin
OVER GRID (l2 IN (0.1, 1, 10))
VALIDATE WHERE month = 12
WITH (operator = 'gap', workers = 2);

-- The schedule as it ran: both workers take steps of the airport that is split; the others pause for them between epochs.
SELECT g.keys[1] AS origin, u.kind, u.worker, count(*) AS times, min(u.first_block) AS first_block,
  max(u.last_block) AS last_block, round(sum(u.ended - u.started), 2) AS seconds, sum(u.fetched)::BIGINT AS bytes_fetched
FROM grouplearn.units AS u
JOIN grouplearn.groups AS g USING (model, group_id)
JOIN grouplearn.models AS m USING (model)
WHERE m.model_name = 'delays_by_airport'
GROUP BY ALL
ORDER BY ALL;

-- The pooled alternative: one model for all carriers, the same features and configurations.
TRAIN OR REPLACE MODEL delays_pooled
USING logistic_regression
PREDICT arr_delay > 15 AS late
FEATURES (
  zscore(dep_delay, distance, air_time),
  zscore(impute(precip), impute(wind_speed), impute(visib)),
  onehot(origin),
  sin(hour * 2 * pi() / 24) AS hour_sin,
  cos(hour * 2 * pi() / 24) AS hour_cos
)
FROM departures
WHERE arr_delay IS NOT NULL
OVER GRID (l1 IN (0, 0.1, 1), l2 IN (0.1, 1, 10, 100))
VALIDATE WHERE month = 12
OPTIMIZE auc;

SHOW MODELS;

-- December: the best model of each carrier against the pooled model.
WITH december AS (FROM departures WHERE month = 12 AND arr_delay IS NOT NULL),
predicted AS (
  SELECT 'one model per carrier' AS model, carrier, arr_delay > 15 AS late, probability FROM delays_predict(december)
  UNION ALL
  SELECT 'one pooled model', carrier, arr_delay > 15, probability FROM delays_pooled_predict(december)
)
SELECT
  model,
  count(*) AS flights,
  round(avg(CASE WHEN late = (probability > 0.5) THEN 1 ELSE 0 END), 4) AS accuracy,
  round(avg(-ln(CASE WHEN late THEN probability ELSE 1 - probability END)), 4) AS log_loss
FROM predicted
WHERE probability IS NOT NULL
GROUP BY model
ORDER BY log_loss;
