// Preloaded: this Node says that its C library is no glibc, as one on Alpine does.
const getReport = process.report.getReport.bind(process.report);
process.report.getReport = () => {
  const report = getReport();
  delete report.header.glibcVersionRuntime;
  return report;
};
