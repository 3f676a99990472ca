package dev.satchel

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.flowOn

/**
 * The answer to a message of the user, piece by piece; `onEnd` gets its figures. Computing is done
 * away from the caller's thread, and stops when nobody collects any more.
 *
 * ```
 * session.stream("Name a river.").collect { print(it) }
 * ```
 */
fun Session.stream(
    text: String,
    options: Options = Options(),
    onEnd: (Generation.Stats) -> Unit = {},
): Flow<String> = flow {
    chat(text, options).use { generation ->
        while (true) {
            val piece = generation.next() ?: break
            if (piece.isNotEmpty()) emit(piece)
        }
        onEnd(generation.stats())
    }
}.flowOn(Dispatchers.Default)
