# Makes a library of each room of lib/LAYERS.txt, which links those that its line names. A folder with
# several rooms has a library without files, too, which stands for all of them.

# Reads LAYERS.txt: sets the global properties KVLIFT_ROOMS, the rooms in the order of the file,
# KVLIFT_ROOM_<room>, what that room may include, and KVLIFT_FOLDERS, the folders with several rooms.
function(kvlift_read_layers FILE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FILE})
  file(STRINGS ${FILE} lines REGEX "^[a-z]")
  set(folders)
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([a-z_/]+):([a-z_/ ]*)" _ "${line}")
    set(room ${CMAKE_MATCH_1})
    separate_arguments(deps UNIX_COMMAND "${CMAKE_MATCH_2}")
    set_property(GLOBAL APPEND PROPERTY KVLIFT_ROOMS ${room})
    set_property(GLOBAL PROPERTY KVLIFT_ROOM_${room} ${deps})
    if(room MATCHES "^([a-z_]+)/")
      list(APPEND folders ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set_property(GLOBAL PROPERTY KVLIFT_FOLDERS ${folders})
endfunction()

# Sets VARIABLE to the name of the library, without kvlift_ in front, of the files in lib/ROOM:
# proof_facts for proof/facts. The files beside the rooms of a folder, such as those of lib/ir, are
# in FOLDER_core.
function(kvlift_room_name ROOM VARIABLE)
  get_property(folders GLOBAL PROPERTY KVLIFT_FOLDERS)
  if(ROOM IN_LIST folders)
    set(ROOM ${ROOM}_core)
  endif()
  string(REPLACE / _ name ${ROOM})
  set(${VARIABLE} ${name} PARENT_SCOPE)
endfunction()

# kvlift_room(ROOM NO_PCH BRIEF ALONE... PLAIN...) defines the library of one room. The options are
# those of kvlift_library.
function(kvlift_room ROOM)
  file(GLOB srcs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${ROOM}/*.cc)
  file(GLOB hdrs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${ROOM}/*.h)
  string(REGEX MATCH "^[a-z_]+" folder ${ROOM})
  get_property(deps GLOBAL PROPERTY KVLIFT_ROOM_${ROOM})
  set(links)
  foreach(dep IN LISTS deps)
    set(name ${dep})  # of another folder: all rooms of it
    if(dep MATCHES "/" OR dep STREQUAL folder)
      kvlift_room_name(${dep} name)
    endif()
    list(APPEND links kvlift_${name})
  endforeach()
  kvlift_room_name(${ROOM} name)
  kvlift_library(${name} SRCS ${srcs} HDRS ${hdrs} DEPS ${links} ${ARGN})
endfunction()

# kvlift_folder(FOLDER NO_PCH BRIEF ALONE... PLAIN...) calls kvlift_room for all rooms of a folder of
# lib/ that have no library yet, and defines the one that stands for all.
function(kvlift_folder FOLDER)
  get_property(rooms GLOBAL PROPERTY KVLIFT_ROOMS)
  list(FILTER rooms INCLUDE REGEX "^${FOLDER}(/|$)")
  set(targets)
  foreach(room IN LISTS rooms)
    kvlift_room_name(${room} name)
    if(NOT TARGET kvlift_${name})
      kvlift_room(${room} ${ARGN})
    endif()
    list(PREPEND targets kvlift_${name})
  endforeach()
  if(NOT targets STREQUAL "kvlift_${FOLDER}")
    kvlift_library(${FOLDER} DEPS ${targets})
  endif()
endfunction()
