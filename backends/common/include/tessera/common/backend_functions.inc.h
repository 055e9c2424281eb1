// The functions behind a back end's table, by the file that has them. Their contracts are in tessera.h. Included by a back end's
// api.h inside of its namespace, so it has no guard and includes nothing.

// device_calls.cpp
tsr_status probe(tsr_probe_result* result);
tsr_status device_info(int32_t device, tsr_device_info* info);
tsr_status context_create(const tsr_context_desc* desc, tsr_context** context);
void context_destroy(tsr_context* context);
const char* last_error_text(const tsr_context* context);

// stream_calls.cpp
tsr_status stream_create(tsr_context* context, tsr_stream** stream);
tsr_status stream_wrap(tsr_context* context, void* native, tsr_stream** stream);
void stream_destroy(tsr_stream* stream);
void* stream_native(tsr_context* context, tsr_stream* stream);
tsr_status stream_synchronize(tsr_context* context, tsr_stream* stream);
tsr_status event_create(tsr_context* context, tsr_event** event);
void event_destroy(tsr_event* event);
tsr_status event_record(tsr_context* context, tsr_event* event, tsr_stream* stream);
tsr_status event_synchronize(tsr_context* context, tsr_event* event);
tsr_status event_elapsed(tsr_context* context, tsr_event* start, tsr_event* stop, double* milliseconds);
tsr_status stream_wait(tsr_context* context, tsr_stream* stream, tsr_event* event);
tsr_status graph_begin(tsr_context* context, tsr_stream* stream);
tsr_status graph_end(tsr_context* context, tsr_stream* stream, tsr_graph** graph);
tsr_status graph_launch(tsr_context* context, tsr_graph* graph, tsr_stream* stream);
void graph_destroy(tsr_graph* graph);

// memory_calls.cpp
tsr_status buffer_create(tsr_context* context, uint64_t bytes, tsr_buffer** buffer);
tsr_status buffer_wrap(tsr_context* context, void* data, uint64_t bytes, tsr_buffer** buffer);
void buffer_destroy(tsr_buffer* buffer);
void* buffer_data(const tsr_buffer* buffer);
uint64_t buffer_bytes(const tsr_buffer* buffer);
tsr_status copy(tsr_context* context, tsr_stream* stream, void* dst, const void* src, uint64_t bytes,
                tsr_copy_kind kind);
tsr_status fill(tsr_context* context, tsr_stream* stream, void* dst, uint8_t value, uint64_t bytes);

// attention_calls.cpp
int32_t kernel_count(tsr_context* context);
tsr_status kernel_info(tsr_context* context, int32_t index, tsr_kernel_info* info);
tsr_status supports(tsr_context* context, const tsr_attention_desc* desc);
tsr_status explain(tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation);
tsr_status attention_workspace(tsr_context* context, const tsr_attention_desc* desc, uint64_t* bytes);
tsr_status attention(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc);
tsr_status decode_workspace(tsr_context* context, const tsr_decode_desc* desc, uint64_t* bytes);
tsr_status decode(tsr_context* context, tsr_stream* stream, const tsr_decode_desc* desc);
tsr_status kv_append(tsr_context* context, tsr_stream* stream, const tsr_append_desc* desc);
tsr_status merge(tsr_context* context, tsr_stream* stream, const tsr_merge_desc* desc);
