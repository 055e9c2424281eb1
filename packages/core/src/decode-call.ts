/** The verb `decode`: attention over a cache, in one call with the append of new tokens if there are any. */

import { rotatedQueries, stagedAppend } from "./append-parts.js";
import { applyTuning, launch, type Results } from "./attention-call.js";
import type { AttentionDesc } from "./backend.js";
import type { CheckedTokens } from "./check-append.js";
import { type CheckedAttention, checkedAttention, decodeAttentionNames } from "./check-attention.js";
import { ofAnotherCopy, otherCopy } from "./copies.js";
import type { EngineCore } from "./engine-core.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { type CacheView, KvCache, type PreparedAppend } from "./kv-cache.js";
import { checkNames } from "./option-names.js";
import { checkApart } from "./overlap.js";
import { Staging } from "./staging.js";
import { isTensor } from "./tensor-brand.js";

const names: ReadonlySet<string> = new Set([...decodeAttentionNames, "cache", "k", "v", "rope", "newLens"]);

type Options = Readonly<Record<string, unknown>>;

/** `engine.decode`. */
export function decodeCall(core: EngineCore, options: unknown): Promise<{ out: unknown; lse?: unknown }> {
  try {
    core.alive();
    checkNames(options, names, "decode");
    const given = options as Options;
    const { cache } = given;
    const other = otherCopy(cache);
    if (other !== undefined) throw invalid(ofAnotherCopy("cache", "cache", other));
    if (!(cache instanceof KvCache))
      throw invalid(`cache is ${describe(cache)}; required: what engine.kvCache() gives`);
    if (cache.owner !== core) throw invalid("cache belongs to another engine");
    const tokens = newTokens(given, cache);
    const act = (held: Options) =>
      tokens ? appendAndAttend(core, given, held, cache, tokens) : attend(core, given, held, cache);
    return Promise.resolve(cache.whenWritable(tokens, given, act));
  } catch (error) {
    return Promise.reject(error);
  }
}

function newTokens(given: Options, cache: KvCache): CheckedTokens | undefined {
  const { k, v, rope, newLens } = given;
  if (k === undefined && v === undefined) {
    if (rope === undefined && newLens === undefined) return undefined;
    const name = rope === undefined ? "newLens" : "rope";
    throw invalid(`${name} is given without k and v; allowed: with new tokens to append`);
  }
  const { q, cuSeqLensQ, layout } = given;
  if (given.seqLensQ !== undefined && newLens !== undefined)
    throw invalid("seqLensQ and newLens are both given; allowed: one of them, newLens counts the queries too");
  if (isTensor(cuSeqLensQ)) throw invalid("cuSeqLensQ is a tensor; allowed in decode: number[] or Int32Array");
  return cache.checkTokens({
    k,
    v,
    rope,
    newLens,
    cuSeqLens: cuSeqLensQ,
    layout,
    q: rope === undefined ? undefined : q,
  });
}

/** The same options as a call of `attention`, with what the cache is now, or will be. */
function checkOver(core: EngineCore, given: Options, view: CacheView): CheckedAttention {
  const { k, v, pageTable, placedLengths } = view;
  const bhsd = given.layout === "bhsd";
  const [kView, vView] = bhsd ? [k.transpose(1, 2), v.transpose(1, 2)] : [k, v];
  try {
    // Written out: an object of one shape, which a step of generation doesn't have to build name by name.
    const checked = checkedAttention(
      {
        q: given.q,
        k: kView,
        v: vView,
        scale: given.scale,
        causal: given.causal,
        align: given.align,
        queryOffset: given.queryOffset,
        window: given.window,
        softcap: given.softcap,
        alibiSlopes: given.alibiSlopes,
        bias: given.bias,
        mask: given.mask,
        sinks: given.sinks,
        kernel: given.kernel,
        numSplits: given.numSplits,
        returnLse: given.returnLse,
        signal: given.signal,
        layout: given.layout,
        out: given.out,
        cuSeqLensQ: given.cuSeqLensQ,
        seqLensQ: given.seqLensQ ?? given.newLens,
        seqLensK: view.seqLensK,
        pageTable: isTensor(pageTable) ? pageTable : pageTable && { data: pageTable.data, shape: pageTable.shape },
        kScale: view.kScale,
        vScale: view.vScale,
      },
      core,
    );
    if (placedLengths) checked.desc.seqLensK = placedLengths;
    return checked;
  } finally {
    if (bhsd) {
      kView.dispose();
      vView.dispose();
    }
  }
}

/** `given` says what results look like, `held` what goes in: the same, with tensors that live. */
function attend(core: EngineCore, given: Options, held: Options, cache: KvCache): Results | Promise<Results> {
  const checked = checkOver(core, held, cache.view());
  applyTuning(core, checked);
  const { signal } = checked;
  const run = (attention: AttentionDesc) => cache.reading(core.context.decode({ attention }, signal));
  return launch(core, given as { q: unknown }, checked, run, signal);
}

function appendAndAttend(
  core: EngineCore,
  given: Options,
  held: Options,
  cache: KvCache,
  tokens: CheckedTokens,
): Results | Promise<Results> {
  // Beside the attention's own staging, as the rotated q lives only as long as the call.
  const own = new Staging(core);
  const rotated = tokens.q && rotatedQueries(core, given.q, tokens, own, cache);
  let prepared: PreparedAppend | undefined;
  const end = () => {
    own.finish();
  };
  const fail = (reason: unknown): never => {
    prepared?.growth.failed(reason);
    end();
    throw reason;
  };
  try {
    prepared = cache.prepare(tokens, rotated?.desc);
    const ready = prepared;
    const checked = checkOver(core, held, ready.view);
    if (checked.out) checkApart(checked.out, { k: tokens.k, v: tokens.v, "rope.positions": tokens.rope?.positions });
    applyTuning(core, checked);
    const call = launch(core, given as { q: unknown }, checked, (desc, staging) => {
      const attention = rotated ? { ...desc, q: rotated.desc } : desc;
      const append = stagedAppend(ready.desc, staging);
      return ready.growth.handedOver(core.context.decode({ append, attention }, checked.signal), checked.onHost);
    });
    const succeed = (results: Results) => {
      ready.growth.succeeded();
      end();
      return results;
    };
    return "then" in call ? call.then(succeed, fail) : succeed(call);
  } catch (error) {
    return fail(error);
  }
}
