-- Model m (logistic_regression) for PostgreSQL, made by grouplearn.
BEGIN;
CREATE TABLE "m_groups" ("group_id" BIGINT, "level" BIGINT, "key_1" BIGINT, "center_1" DOUBLE PRECISION, "scale_1" DOUBLE PRECISION, "null_2" BIGINT, "rest_2" BIGINT, "center_4" DOUBLE PRECISION, "scale_4" DOUBLE PRECISION, "null_5" BIGINT, "rest_5" BIGINT);
INSERT INTO "m_groups" VALUES
(0, 0, 0, 0.0, 0.0, NULL, NULL, 0.0, 0.0, NULL, NULL),
(1, 0, 1, 0.0, 0.0, NULL, NULL, 0.0, 0.0, NULL, NULL),
(2, 0, 2, 0.0, 0.0, 0, NULL, 0.0, 0.0, NULL, NULL),
(3, 1, NULL, 0.0, 0.0, 0, NULL, 0.0, 0.0, NULL, NULL);
ANALYZE "m_groups";
CREATE TABLE "m_item_2" ("group_id" BIGINT, "value" TEXT, "place" BIGINT);
INSERT INTO "m_item_2" VALUES
(0, 'a', 0),
(1, 'b''c', 0),
(3, 'a', 1),
(3, 'b''c', 2);
ANALYZE "m_item_2";
CREATE TABLE "m_item_5" ("group_id" BIGINT, "value" TEXT, "place" BIGINT);
INSERT INTO "m_item_5" VALUES
(0, 'a & 0', 0),
(0, 'a & 1', 1),
(0, 'a & 2', 2),
(0, 'a & 3', 3),
(0, 'a & 4', 4),
(1, 'b''c & 0', 0),
(1, 'b''c & 1', 1),
(1, 'b''c & 2', 2),
(1, 'b''c & 3', 3),
(1, 'b''c & 4', 4),
(3, 'a & 0', 0),
(3, 'a & 1', 1),
(3, 'a & 2', 2),
(3, 'a & 3', 3),
(3, 'a & 4', 4),
(3, 'b''c & 0', 5),
(3, 'b''c & 1', 6),
(3, 'b''c & 2', 7),
(3, 'b''c & 3', 8),
(3, 'b''c & 4', 9);
ANALYZE "m_item_5";
CREATE TABLE "m_weights" ("group_id" BIGINT, "unit" BIGINT, "bias" DOUBLE PRECISION, "weight_1" DOUBLE PRECISION, "cells_2" BIGINT, "cells_3" BIGINT, "weight_4" DOUBLE PRECISION, "cells_5" BIGINT);
INSERT INTO "m_weights" VALUES
(0, 0, 0.0, 0.0, 0, 1, 0.0, 5),
(1, 0, 0.0, 0.0, 10, 11, 0.0, 15),
(2, 0, 0.0, 0.0, 20, 21, 0.0, 25),
(3, 0, 0.0, 0.0, 25, 28, 0.0, 32);
ANALYZE "m_weights";
CREATE TABLE "m_category_weights" ("cell" BIGINT, "weight" DOUBLE PRECISION);
INSERT INTO "m_category_weights" VALUES
(0, 0.0),
(1, 0.0),
(2, 0.0),
(3, 0.0),
(4, 0.0),
(5, 0.0),
(6, 0.0),
(7, 0.0),
(8, 0.0),
(9, 0.0),
(10, 0.0),
(11, 0.0),
(12, 0.0),
(13, 0.0),
(14, 0.0),
(15, 0.0),
(16, 0.0),
(17, 0.0),
(18, 0.0),
(19, 0.0),
(20, 0.0),
(21, 0.0),
(22, 0.0),
(23, 0.0),
(24, 0.0),
(25, 0.0),
(26, 0.0),
(27, 0.0),
(28, 0.0),
(29, 0.0),
(30, 0.0),
(31, 0.0),
(32, 0.0),
(33, 0.0),
(34, 0.0),
(35, 0.0),
(36, 0.0),
(37, 0.0),
(38, 0.0),
(39, 0.0),
(40, 0.0),
(41, 0.0);
ANALYZE "m_category_weights";
CREATE VIEW "m_predictions" AS
WITH "rows" AS (
  SELECT
    "__grouplearn_row" AS "__grouplearn_carried",
    (
      "shop"
    ) AS "__grouplearn_key1",
    CAST((
      "weight"
    ) AS DOUBLE PRECISION) AS "__grouplearn_item1",
    CAST((
      "kind"
    ) AS VARCHAR) AS "__grouplearn_item2",
    MD5(CAST((
      "size"
    ) AS VARCHAR)) AS "__grouplearn_item3",
    CAST(EXTRACT(ISODOW FROM CAST((
      "day"
    ) AS TIMESTAMP)) AS DOUBLE PRECISION) AS "__grouplearn_item4",
    REPLACE(
      CASE
        WHEN CAST((
          "kind"
        ) AS VARCHAR) IN ('(null)', '(other)', '\(null)', '\(other)', '\\(null)', '\\(other)')
        THEN '\' || CAST((
          "kind"
        ) AS VARCHAR)
        ELSE CAST((
          "kind"
        ) AS VARCHAR)
      END,
      '&',
      '\&'
    ) || ' & ' || REPLACE(CAST((
      "size"
    ) AS VARCHAR), '&', '\&') AS "__grouplearn_item5"
  FROM shop.small AS "__grouplearn_row"
), "routed" AS (
  SELECT
    "r".*,
    CAST(COALESCE("l0"."group_id", 3, NULL) AS BIGINT) AS "__grouplearn_group"
  FROM "rows" AS "r"
  LEFT JOIN "m_groups" AS "l0"
    ON "l0"."level" = 0 AND "l0"."key_1" = "r"."__grouplearn_key1"
), "encoded" AS (
  SELECT
    "r".*,
    "g"."level" AS "__grouplearn_level",
    CAST((
      CASE
        WHEN "r"."__grouplearn_item1" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
        THEN "r"."__grouplearn_item1"
      END - "g"."center_1"
    ) AS DOUBLE PRECISION) / "g"."scale_1" AS "__grouplearn_x1",
    CASE
      WHEN "r"."__grouplearn_item2" IS NULL
      THEN "g"."null_2"
      ELSE COALESCE("c2"."place", "g"."rest_2")
    END AS "__grouplearn_x2",
    (
      (
        CAST(CAST('x' || SUBSTRING("r"."__grouplearn_item3" FROM 31 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 29 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 27 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 25 FOR 2) AS BIT(32)) AS BIGINT) % 4
      ) * 0 + CAST(CAST('x' || SUBSTRING("r"."__grouplearn_item3" FROM 23 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 21 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 19 FOR 2) || SUBSTRING("r"."__grouplearn_item3" FROM 17 FOR 2) AS BIT(32)) AS BIGINT)
    ) % 4 AS "__grouplearn_x3",
    CAST((
      CASE
        WHEN "r"."__grouplearn_item4" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
        THEN "r"."__grouplearn_item4"
      END - "g"."center_4"
    ) AS DOUBLE PRECISION) / "g"."scale_4" AS "__grouplearn_x4",
    CASE
      WHEN "r"."__grouplearn_item5" IS NULL
      THEN "g"."null_5"
      ELSE COALESCE("c5"."place", "g"."rest_5")
    END AS "__grouplearn_x5"
  FROM "routed" AS "r"
  LEFT JOIN "m_groups" AS "g"
    ON "g"."group_id" = "r"."__grouplearn_group"
  LEFT JOIN "m_item_2" AS "c2"
    ON "c2"."group_id" = "r"."__grouplearn_group"
    AND "c2"."value" = "r"."__grouplearn_item2"
  LEFT JOIN "m_item_5" AS "c5"
    ON "c5"."group_id" = "r"."__grouplearn_group"
    AND "c5"."value" = "r"."__grouplearn_item5"
), "scored" AS (
  SELECT
    "r".*,
    "w0"."bias" + "r"."__grouplearn_x1" * "w0"."weight_1" + COALESCE("c2_0"."weight", 0) + COALESCE("c3_0"."weight", 0) + "r"."__grouplearn_x4" * "w0"."weight_4" + COALESCE("c5_0"."weight", 0) AS "__grouplearn_s0"
  FROM "encoded" AS "r"
  LEFT JOIN "m_weights" AS "w0"
    ON "w0"."group_id" = "r"."__grouplearn_group" AND "w0"."unit" = 0
  LEFT JOIN "m_category_weights" AS "c2_0"
    ON "c2_0"."cell" = "w0"."cells_2" + "r"."__grouplearn_x2"
  LEFT JOIN "m_category_weights" AS "c3_0"
    ON "c3_0"."cell" = "w0"."cells_3" + "r"."__grouplearn_x3"
  LEFT JOIN "m_category_weights" AS "c5_0"
    ON "c5_0"."cell" = "w0"."cells_5" + "r"."__grouplearn_x5"
), "probabilities" AS (
  SELECT
    "r".*,
    CAST(1.0 AS DOUBLE PRECISION) / (
      1.0 + EXP(
        -(
          CASE
            WHEN "__grouplearn_s0" > 700
            THEN 700
            WHEN "__grouplearn_s0" < -700
            THEN -700
            ELSE "__grouplearn_s0"
          END
        )
      )
    ) AS "__grouplearn_p"
  FROM "scored" AS "r"
)
SELECT
  (
    "__grouplearn_carried"
  ).*,
  CASE
    WHEN "__grouplearn_p" > 0.5
    THEN TRUE
    WHEN "__grouplearn_p" <= 0.5
    THEN FALSE
  END AS "prediction",
  "__grouplearn_p" AS "probability",
  CASE "__grouplearn_level" WHEN 0 THEN 'shop' WHEN 1 THEN '()' END AS "model_level"
FROM "probabilities";
COMMIT;
