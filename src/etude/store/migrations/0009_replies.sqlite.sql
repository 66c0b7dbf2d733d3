-- Answers that were kept for repeated requests may hold keys in plain text. Now such answers are not kept.
DELETE FROM replies;
