use super::*;

#[test]
fn every_combination_is_there_at_zero() {
    let text = Metrics::default().encode();
    for line in [
        "# TYPE etcdbr_snapshot_gc_total counter",
        "etcdbr_snapshot_gc_total{kind=\"Chunk\",succeeded=\"false\"} 0",
        "etcdbr_snapshot_latest_revision{kind=\"Full\"} 0",
        "etcdbr_snapshot_latest_revision{kind=\"Chunk\"} 0",
        "etcdbr_snapshot_latest_timestamp{kind=\"Chunk\"} 0",
        "etcdbr_snapshot_required{kind=\"Chunk\"} 0",
        "etcdbr_snapshot_duration_seconds_count{kind=\"Chunk\",succeeded=\"false\"} 0",
        "promhttp_metric_handler_requests_in_flight 0",
        "promhttp_metric_handler_requests_total{code=\"200\"} 0",
        "promhttp_metric_handler_requests_total{code=\"503\"} 0",
        "etcdbr_restoration_duration_seconds_count{restore=\"single_member\",succeeded=\"true\"} 0",
        "etcdbr_defragmentation_duration_seconds_count{endpoint=\"\",succeeded=\"true\"} 0",
        "etcdbr_snapshotter_failure{error=\"\"} 0",
        "etcdbr_cluster_size 0",
        "etcdbr_is_learner_count_total{succeeded=\"true\"} 0",
        "etcdbr_snapshot_duration_seconds_bucket{kind=\"Incr\",succeeded=\"true\",le=\"0.005\"} 0",
        "etcdbr_snapshot_duration_seconds_bucket{kind=\"Incr\",succeeded=\"true\",le=\"+Inf\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
    }
}

#[test]
fn a_scrape_sees_itself() {
    let metrics = Metrics::default();
    for scrapes in 0..2 {
        let text = metrics.scraped();
        for line in [
            "promhttp_metric_handler_requests_in_flight 1".to_owned(),
            format!("promhttp_metric_handler_requests_total{{code=\"200\"}} {scrapes}"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
    }
}

#[test]
fn what_happened_is_counted() {
    let metrics = Metrics::default();
    metrics.snapshot_took(Kind::Full, true, Duration::from_millis(600));
    metrics.latest_snapshot(Kind::Full, 2, 1_794_730_525);
    metrics.collected(Object::Snapshot(Kind::Incr), true);
    metrics.defragmentation_took("http://a:2379", true, Duration::from_secs(20));
    let text = metrics.encode();
    for line in [
        "etcdbr_snapshot_duration_seconds_count{kind=\"Full\",succeeded=\"true\"} 1",
        "etcdbr_snapshot_duration_seconds_bucket{kind=\"Full\",succeeded=\"true\",le=\"0.5\"} 0",
        "etcdbr_snapshot_duration_seconds_bucket{kind=\"Full\",succeeded=\"true\",le=\"1\"} 1",
        "etcdbr_snapshot_latest_revision{kind=\"Full\"} 2",
        "etcdbr_snapshot_latest_timestamp{kind=\"Full\"} 1794730525",
        "etcdbr_snapshot_gc_total{kind=\"Incr\",succeeded=\"true\"} 1",
        "etcdbr_defragmentation_duration_seconds_count{endpoint=\"http://a:2379\",succeeded=\"true\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
    }
}
