-- The words of runs, by the number of the run. They are split by `etude`, so that all stores split them alike: here a
-- word is what stands between spaces.
CREATE VIRTUAL TABLE run_words USING fts5 (
    words, content = '', columnsize = 0, detail = none, prefix = '1 2 3', tokenize = "ascii tokenchars '_'"
);

CREATE VIRTUAL TABLE run_vocabulary USING fts5vocab (run_words, row);

INSERT INTO run_words (rowid, words) SELECT no, search FROM runs ORDER BY no;

CREATE TRIGGER runs_have_words AFTER INSERT ON runs BEGIN
    INSERT INTO run_words (rowid, words) VALUES (new.no, new.search);
END;
