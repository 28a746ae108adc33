/**
 * Asks for many at once, one question at a time: whoever comes while one is under way shares the next one. A busy process
 * thus sends no more statements than an idle one, and no answer is older than its question.
 */
export function inRounds<Key, Answer>(
  ask: (keys: readonly Key[]) => Promise<Answer>,
): (...keys: readonly Key[]) => Promise<Answer> {
  let next: Round<Key, Answer> | undefined
  let running = false

  const run = async () => {
    running = true
    while (next !== undefined) {
      const { keys, answer } = next
      next = undefined
      // Whoever waits for the answer hears of the failure.
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

type Round<Key, Answer> = { readonly keys: Set<Key>; readonly answer: PromiseWithResolvers<Answer> }
