/**
 * Asks for many at once, one question at a time: requests that come meanwhile share the next one. A busy process
 * thus sends no more statements than an idle one, and no answer is older than its question.
 */
export function inRounds<Key, Answer>(
  ask: (keys: readonly Key[]) => Promise<Answer>,
): (...keys: readonly Key[]) => Promise<Answer> {
  let next: QuestionRound<Key, Answer> | undefined
  let running = false

  const run = async () => {
    running = true
    while (next !== undefined) {
      const { keys, answer } = next
      next = undefined
      // The caller that waits for the answer gets the failure.
      await ask([...keys]).then(answer.resolve, answer.reject)
    }
    running = false
  }

  return (...keys) => {
    next ??= { keys: new Set(), answer: Promise.withResolvers() }
    const round = next
    for (const key of keys) round.keys.add(key)
    if (!running) void run()
    return round.answer.promise
  }
}

/** Reads at most once a second however many ask, and never twice at the same time. */
export function onceASecond<T>(read: () => Promise<T>): () => Promise<T> {
  let last: Promise<T> | undefined
  let readAt = 0
  let isReading = false
  const begin = async () => {
    isReading = true
    readAt = performance.now()
    try {
      return await read()
    } finally {
      isReading = false
    }
  }
  return () => {
    if (last === undefined || (!isReading && performance.now() - readAt > 1000)) last = begin()
    return last
  }
}

type QuestionRound<Key, Answer> = { readonly keys: Set<Key>; readonly answer: PromiseWithResolvers<Answer> }
